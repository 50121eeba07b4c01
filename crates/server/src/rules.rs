//! stub
use crate::config::meant;
use crate::reply::Reply;
use wire::HeadView;
pub(crate) struct Rules;
pub(crate) enum Ruled {
    Nothing,
    Reply(Reply),
    Rewritten(Vec<u8>),
}
impl Rules {
    pub(crate) fn new(_: &meant::Rules) -> Rules {
        Rules
    }
    pub(crate) fn look(&self, head: HeadView<'_>) -> Ruled {
        if head.path().is_empty() {
            return Ruled::Rewritten(vec![]);
        }
        Ruled::Nothing
    }
}
