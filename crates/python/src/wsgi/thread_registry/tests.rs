//! Pool threads that are looked at and interrupted.

use super::*;

const BEGAN: Stamp = Stamp(1_000);

fn run(py: Python<'_>, script: &std::ffi::CStr) -> PyResult<()> {
    py.run(script, None, None)
}

#[test]
fn an_exception_reaches_the_exchange_that_it_is_meant_for() {
    Python::initialize();
    Python::attach(|py| {
        let registry = ThreadRegistry::default();
        let entered = registry.enter(py).unwrap();
        let thread = registry.find(entered.thread.thread).unwrap();
        let inside = thread.begin(py, BEGAN);
        assert!(!thread.interrupt(py, Stamp(999)));
        assert!(thread.interrupt(py, BEGAN) && !thread.interrupt(py, BEGAN));
        let error = run(py, c"while True: pass").unwrap_err();
        assert!(error.is_instance_of::<RequestTimeout>(py), "{error}");
        assert!(!error.is_instance_of::<pyo3::exceptions::PyException>(py));
        assert!(inside.leave());
        run(py, c"for _ in range(100_000): pass").unwrap();
    });
}

#[test]
fn an_exception_that_comes_too_late_meets_nobody() {
    Python::initialize();
    Python::attach(|py| {
        let registry = ThreadRegistry::default();
        let entered = registry.enter(py).unwrap();
        let inside = entered.thread.begin(py, BEGAN);
        assert_eq!(registry.inside_len(), 1);
        assert!(entered.thread.interrupt(py, BEGAN));
        assert!(inside.leave());
        run(py, c"for _ in range(100_000): pass").unwrap();
        assert!(!entered.thread.interrupt(py, BEGAN));
        assert_eq!(registry.inside_len(), 0);
        let undisturbed = entered.thread.begin(py, Stamp(2_000));
        assert!(!undisturbed.leave());
    });
}

/// One of these tests holds the interpreter for longer than the other waits for it.
static TURN: Mutex<()> = Mutex::new(());

#[test]
fn shows_where_another_thread_is() {
    Python::initialize();
    Python::attach(|py| {
        let names = PyDict::new(py);
        let script = c"
import threading
inside, go, ident = threading.Event(), threading.Event(), []
def innermost():
    ident.append(threading.get_ident())
    inside.set()
    go.wait()
def outermost(): innermost()
thread = threading.Thread(target=outermost)
thread.start()
inside.wait()
";
        py.run(script, Some(&names), None).unwrap();
        let ident = names.get_item("ident").unwrap().unwrap();
        let ident = ident.get_item(0).unwrap().extract().unwrap();
        let text = stack_of(py, ident);
        py.run(c"go.set(); thread.join()", Some(&names), None)
            .unwrap();
        let at = |name: &str| text.find(name).unwrap_or_else(|| panic!("{name}: {text}"));
        assert!(at("in outermost") < at("in innermost"), "{text}");
        assert!(stack_of(py, ident).contains("no frame"));
    });
}

#[test]
fn whoever_has_its_answer_is_not_waited_for() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    Python::initialize();
    Python::attach(|py| {
        let registry = ThreadRegistry::default();
        let entered = registry.enter(py).unwrap();
        let sampler = StackSampler::default();
        py.detach(|| {
            for _ in 0..200 {
                assert_ne!(
                    sampler.stack(Arc::clone(&entered.thread), ATTACH_MAX),
                    Stack::Held
                );
                assert!(sampler.interrupt(Arc::clone(&entered.thread), Stamp(1)));
            }
        });
    });
}

#[test]
fn waits_no_longer_than_a_second_for_an_interpreter_that_somebody_holds() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    Python::initialize();
    Python::attach(|py| {
        let registry = ThreadRegistry::default();
        let entered = registry.enter(py).unwrap();
        let thread = Arc::clone(&entered.thread);
        let sampler = StackSampler::default();
        // Attached all the while: with a GIL nobody else gets in, without one its frame is found.
        let is_free = sampler.stack(Arc::clone(&thread), ATTACH_MAX) != Stack::Held;
        let gil = py.import("sys").unwrap().getattr_opt("_is_gil_enabled");
        let gil = gil
            .unwrap()
            .is_none_or(|is| is.call0().unwrap().extract().unwrap());
        if gil {
            assert!(!is_free);
            // Nobody waits a second time for what is waited for already.
            assert_eq!(sampler.stack(thread, ATTACH_MAX), Stack::Held);
        }
    });
}
