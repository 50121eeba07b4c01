//! The meter: how much processor time a thread has used since it began something.
//!
//! Takes the kernel's clock of the thread, which stands still while it waits. Its own thread reads it at the
//! end of each exchange; others may look while it runs, which tells computing from hanging. Knows no
//! exchange.

use measure::Nanos;
use nix::time::ClockId;

/// How much one thread has used since it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meter {
    /// What the kernel calls the thread.
    thread: i32,
    /// What its clock read then.
    began: Nanos,
}

impl Meter {
    /// Of the calling thread, from now on.
    pub fn start() -> Meter {
        Meter {
            thread: rustix::thread::gettid().as_raw_nonzero().get(),
            began: own(),
        }
    }

    /// Its own thread: how much it has used; from here on it counts anew. One system call, no other clock is
    /// read.
    pub fn lap(&mut self) -> Nanos {
        let now = own();
        let used = since(now, self.began);
        self.began = now;
        used
    }

    /// How much its thread has used until now, whoever asks; `None` when the thread is gone.
    pub fn used(&self) -> Option<Nanos> {
        read(clock_of(self.thread)).map(|now| since(now, self.began))
    }
}

fn own() -> Nanos {
    read(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("a thread can always read its own clock")
}

/// The clock of a thread of this process, as the kernel numbers them: the thread's id with all bits turned
/// over, and below it the kind, CPUCLOCK_SCHED (2) of a thread (4).
fn clock_of(thread: i32) -> ClockId {
    ClockId::from_raw((!thread << 3) | 6)
}

fn read(clock: ClockId) -> Option<Nanos> {
    let now = clock.now().ok()?;
    let secs = u64::try_from(now.tv_sec()).ok()?;
    let rest_ns = u64::try_from(now.tv_nsec()).ok()?;
    Some(Nanos(Nanos::from_secs(secs).0.saturating_add(rest_ns)))
}

fn since(now: Nanos, began: Nanos) -> Nanos {
    Nanos(now.0.saturating_sub(began.0))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    /// Computes until the calling thread has used that much more.
    fn compute(ms: u64) {
        let end = own().0 + Nanos::from_ms(ms).0;
        while own().0 < end {}
    }

    #[test]
    fn counts_what_its_thread_computes_once() {
        let mut meter = Meter::start();
        compute(20);
        assert!(meter.lap() >= Nanos::from_ms(20));
        assert!(meter.used().unwrap() < Nanos::from_ms(20));
    }

    #[test]
    fn stands_still_while_its_thread_waits_whoever_looks() {
        let (go, gone) = mpsc::channel::<()>();
        let (tell, told) = mpsc::channel();
        let waiting = thread::spawn(move || {
            let meter = Meter::start();
            compute(5);
            tell.send(meter).unwrap();
            gone.recv().unwrap_err();
        });
        let meter = told.recv().unwrap();
        // The other thread could have used as much.
        compute(100);
        let used = meter.used().unwrap();
        assert!(
            (Nanos::from_ms(5)..Nanos::from_ms(50)).contains(&used),
            "{used}"
        );
        drop(go);
        waiting.join().unwrap();
    }

    #[test]
    fn knows_nothing_of_threads_of_others() {
        let meter = Meter {
            thread: i32::MAX >> 3,
            began: Nanos::ZERO,
        };
        assert_eq!(meter.used(), None);
    }
}
