//! Forking a process that has imported an application: one thread, real processes.
//!
//! No harness: it would have threads of its own. Every check is a function that panics.

#![allow(clippy::unwrap_used)] // All of this is a test.

use _milepost::Host;
use cli::{AppHost, Forked};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Its name, and what it does.
type Check = (&'static str, fn(&Host));

fn main() {
    Python::initialize();
    let host = Host::here();
    let checks: [Check; 4] = [
        (
            "a_child_runs_the_hooks_and_writes_nothing_twice",
            check_child,
        ),
        ("refuses_beside_a_thread_and_names_it", check_threads),
        ("keeps_the_collector_away_from_what_is_frozen", check_frozen),
        ("a_hook_that_raises_stops_no_fork", check_raising_hook),
    ];
    for (name, check) in checks {
        check(&host);
        println!("test {name} ... ok");
    }
}

/// Runs a script with a namespace of its own, in which `pid` is what was forked, and gives a text from it.
fn run(script: &str, pid: u32, give: &str) -> String {
    Python::attach(|py| {
        let names = PyDict::new(py);
        names.set_item("pid", pid).unwrap();
        let script = std::ffi::CString::new(script).unwrap();
        if let Err(error) = py.run(&script, Some(&names), None) {
            error.print(py);
            // In a child a panic would go on in the parent's code.
            std::process::exit(1);
        }
        let found = names.get_item(give).unwrap();
        found.map_or_else(String::new, |text| text.str().unwrap().to_string())
    })
}

/// Forks; what `script` makes of `told` in the child is given to the parent.
fn told_by_child(host: &Host, script: &str) -> String {
    let pipe = run("import os\npipe = '%d %d' % os.pipe()", 0, "pipe");
    let (read, write) = pipe.split_once(' ').unwrap();
    match host.fork().unwrap() {
        Forked::Child => {
            let end =
                format!("{script}\nimport os\nos.write({write}, str(told).encode())\nos._exit(7)");
            run(&end, 0, "told");
            unreachable!("the child has ended");
        }
        Forked::Parent(pid) => {
            let wait = format!(
                "import os\nos.close({write})\ntext = open({read}).read()\n\
                 code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])\ntext = '%d %s' % (code, text)"
            );
            let text = run(&wait, pid, "text");
            text.strip_prefix("7 ")
                .expect("the child told it")
                .to_owned()
        }
    }
}

fn check_child(host: &Host) {
    let out = run(
        "import os, random, sys, tempfile\n\
         out = tempfile.mktemp()\n\
         sys.stdout = open(out, 'w')\n\
         print('once')\n\
         random.seed(5)\n\
         os.register_at_fork(after_in_child=lambda: setattr(sys, 'fork_hook', 'ran'))",
        0,
        "out",
    );
    let child = told_by_child(
        host,
        "import random, sys, os\nsys.stdout.flush()\n\
         told = '%s %s %s' % (sys.fork_hook, random.random(), len(os.listdir('/proc/self/task')))",
    );
    let own = run("import random\nown = random.random()", 0, "own");
    let words: Vec<&str> = child.split(' ').collect();
    assert_eq!((words[0], words[2]), ("ran", "1"), "{child}");
    assert_ne!(words[1], own, "both draw the same numbers");
    let end = format!(
        "import os, sys\nsys.stdout.close()\nsys.stdout = sys.__stdout__\n\
         text = open('{out}').read()\nos.unlink('{out}')\nhooked = hasattr(sys, 'fork_hook')\n\
         text = '%s%s' % (text, hooked)"
    );
    assert_eq!(run(&end, 0, "text"), "once\nFalse");
}

fn check_threads(host: &Host) {
    run(
        "import sys, threading\n\
         sys.held = threading.Event()\n\
         sys.kept = threading.Thread(target=sys.held.wait, name='reporter', daemon=True)\n\
         sys.kept.start()",
        0,
        "",
    );
    let error = host.fork().unwrap_err().to_string();
    let expect = "the application starts threads when it is imported: `reporter`";
    assert_eq!(error, expect);
    // The kernel may know the thread a moment longer than `join` does.
    run("import sys\nsys.held.set()\nsys.kept.join()", 0, "");
    assert_eq!(told_by_child(host, "told = 'forked'"), "forked");
}

fn check_frozen(host: &Host) {
    run(
        "import gc, sys\nsys.cycle = []\nsys.cycle.append(sys.cycle)",
        0,
        "",
    );
    host.freeze();
    let child = told_by_child(
        host,
        "import gc, sys\n\
         found = any(kept is sys.cycle for kept in gc.get_objects())\n\
         told = '%s %s' % (gc.get_freeze_count() > 1000, found)",
    );
    // Where no collector is needed for that, as without a GIL, there is no count.
    assert!(["True False", "False False"].contains(&&*child), "{child}");
}

fn check_raising_hook(host: &Host) {
    // Python reports it by itself; a fork that took place cannot be taken back.
    run(
        "import os, sys\n\
         sys.unraisablehook = lambda what: setattr(sys, 'raised', str(what.exc_value))\n\
         def hook(): raise RuntimeError('no')\n\
         os.register_at_fork(before=hook)",
        0,
        "",
    );
    assert_eq!(told_by_child(host, "import sys\ntold = sys.raised"), "no");
}
