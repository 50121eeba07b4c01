//! stub
use crate::config::meant::ErrorPage;
use crate::fault::StartFault;
use crate::reply::Reply;
pub(crate) struct Pages;
impl Pages {
    pub(crate) fn open(_: &[ErrorPage]) -> Result<Pages, StartFault> {
        Ok(Pages)
    }
    pub(crate) fn dress(&self, reply: Reply) -> Reply {
        reply
    }
}
