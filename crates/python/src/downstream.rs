//! What applications say of things that all their requests share, such as connections to a database.
//!
//! `milepost.downstream` writes, the pools' controller reads: more threads would only wait for the same.

use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Things that may be known at once.
const NAMES_LEN_MAX: usize = 64;
/// Bytes of one name.
const NAME_BYTES_MAX: usize = 256;
/// Pools that are told apart.
const POOLS_LEN_MAX: u16 = 63;

static ALL: Mutex<Vec<Downstream>> = Mutex::new(Vec::new());

thread_local! {
    /// The pool that this thread belongs to.
    static POOL: Cell<Option<u16>> = const { Cell::new(None) };
}

struct Downstream {
    name: String,
    used: u64,
    size: u64,
    /// A bit for each pool whose threads have spoken of it.
    pools: u64,
}

/// Says that `used` of `size` of what is called `name` are taken, such as connections to a database.
///
/// While all of it is taken, pools whose threads have spoken of it are not given more threads; what is said
/// on a thread that Milepost has not started concerns all pools. It counts until the next call with that
/// name; a size of 0 forgets the name.
#[pyfunction]
pub(crate) fn downstream(name: &str, used: u64, size: u64) -> PyResult<()> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(PyValueError::new_err(format!(
            "the name must have 1 to {NAME_BYTES_MAX} bytes, not {}",
            name.len()
        )));
    }
    let pools = POOL.get().map_or(u64::MAX, bit);
    say(&mut all(), name, (used, size), pools).map_err(PyValueError::new_err)
}

/// This thread belongs to that pool.
pub(crate) fn enter(pool: u16) {
    POOL.set(Some(pool));
}

/// Whether something is used up that requests of that pool need.
pub(crate) fn is_full(pool: u16) -> bool {
    is_used_up(&all(), pool)
}

fn is_used_up(all: &[Downstream], pool: u16) -> bool {
    all.iter()
        .any(|one| one.used >= one.size && one.pools & bit(pool) != 0)
}

fn say(
    all: &mut Vec<Downstream>,
    name: &str,
    (used, size): (u64, u64),
    pools: u64,
) -> Result<(), String> {
    if size == 0 {
        all.retain(|one| one.name != name);
        return Ok(());
    }
    if let Some(one) = all.iter_mut().find(|one| one.name == name) {
        (one.used, one.size, one.pools) = (used, size, one.pools | pools);
        return Ok(());
    }
    if all.len() >= NAMES_LEN_MAX {
        return Err(format!("no more than {NAMES_LEN_MAX} names are kept"));
    }
    all.push(Downstream {
        name: name.to_owned(),
        used,
        size,
        pools,
    });
    Ok(())
}

/// Pools beyond the last that is told apart share its bit.
fn bit(pool: u16) -> u64 {
    1 << pool.min(POOLS_LEN_MAX)
}

fn all() -> MutexGuard<'static, Vec<Downstream>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn concerns_the_pools_that_have_spoken_of_it() {
        let mut all = Vec::new();
        say(&mut all, "db", (4, 5), bit(1)).unwrap();
        assert!(!is_used_up(&all, 1));
        say(&mut all, "db", (5, 5), bit(1)).unwrap();
        assert!(is_used_up(&all, 1) && !is_used_up(&all, 0));
        say(&mut all, "db", (6, 5), bit(0)).unwrap();
        assert!(is_used_up(&all, 1) && is_used_up(&all, 0));
        say(&mut all, "db", (0, 0), bit(0)).unwrap();
        assert!(all.is_empty());
        say(&mut all, "cache", (1, 1), u64::MAX).unwrap();
        assert!((0..100).all(|pool| is_used_up(&all, pool)));
    }
}
