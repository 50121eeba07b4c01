//! The seam between the house and what answers: handlers that run on pool threads (`Handler`), one of which
//! says why there is no other (`failing`), and `files` that answers on a driver.
//!
//! A handler sees an exchange and an outlet; it never sees a socket.

pub mod failing;
pub mod files;

use crate::delivery::Outlet;
use crate::exchange::Exchange;
use crate::fault::Fault;
use crate::pool::Seat;

/// Something that answers exchanges on pool threads.
pub trait Handler: Send + Sync + 'static {
    /// The life of one pool thread: take exchanges from the seat until it gives none.
    ///
    /// ```text
    /// while let Some(exchange) = seat.next_now().or_else(|| seat.next_wait()) {
    ///     seat.attend(exchange, |exchange, outlet| answer(exchange, outlet));
    /// }
    /// ```
    fn work(&self, seat: &mut Seat);
}

/// A handler without state of its own per thread.
impl<F> Handler for F
where
    F: Fn(&mut Exchange, &mut Outlet<'_>) -> Result<(), Fault> + Send + Sync + 'static,
{
    fn work(&self, seat: &mut Seat) {
        while let Some(exchange) = seat.next_wait() {
            seat.attend(exchange, self);
        }
    }
}
