//! How this very command was started, so that it can be started anew: by the supervisor for each serving
//! process, and for an upgrade.
//!
//! Takes what the interpreter says of itself, gives an absolute command line. Starts nothing.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use pyo3::prelude::*;

/// The command line of this process, for a program that runs in any folder.
pub(crate) fn own(py: Python<'_>, started_in: &Path) -> Vec<OsString> {
    let said = |name| py.import("sys")?.getattr(name);
    let executable: Option<OsString> = said("executable")
        .and_then(|it| it.extract())
        .ok()
        .flatten();
    let orig_argv: Vec<OsString> = said("orig_argv")
        .and_then(|it| it.extract())
        .unwrap_or_default();
    // An interpreter within another program does not know where it lies.
    let executable = executable
        .filter(|path| !path.is_empty())
        .unwrap_or_else(|| {
            std::env::current_exe().map_or_else(|_| "/proc/self/exe".into(), OsString::from)
        });
    command(&executable, &orig_argv, started_in)
}

/// `executable` with all that stood behind the interpreter's name in `orig_argv`; both it and the script
/// are made absolute from `started_in`, but symbolic links are kept: a virtual environment is known by the
/// link that its interpreter is.
fn command(executable: &OsStr, orig_argv: &[OsString], started_in: &Path) -> Vec<OsString> {
    let absolute = |path: &OsStr| started_in.join(path).into_os_string();
    let mut words = vec![absolute(executable)];
    let arguments = orig_argv.get(1..).unwrap_or_default();
    let script = script_at(arguments);
    for (at, word) in arguments.iter().enumerate() {
        words.push(match Some(at) == script {
            true => absolute(word),
            false => word.clone(),
        });
    }
    words
}

/// Which word is the script. None behind `-m`, `-c` and `-`: then the program is no file of the command line.
fn script_at(arguments: &[OsString]) -> Option<usize> {
    let mut at = 0;
    loop {
        let word = arguments.get(at)?.as_bytes();
        if !word.starts_with(b"-") {
            return Some(at);
        }
        at += option_len(word)?;
    }
}

/// Words of an option with its value; `None` where what follows belongs to the program.
///
/// As `python(1)` has it: letters may stand together (`-Im`), and a value behind its letter (`-Xdev`).
fn option_len(word: &[u8]) -> Option<usize> {
    match word {
        b"-" => return None,
        b"--check-hash-based-pycs" => return Some(2),
        [b'-', b'-', ..] => return Some(1),
        _ => {}
    }
    let Some(at) = word.iter().position(|letter| b"cmWX".contains(letter)) else {
        return Some(1);
    };
    match word[at] {
        b'c' | b'm' => None,
        _ if at + 1 == word.len() => Some(2),
        _ => Some(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(executable: &str, orig_argv: &str, expect: &str) {
        let words: Vec<OsString> = orig_argv.split(' ').map(Into::into).collect();
        let found = command(OsStr::new(executable), &words, Path::new("/srv/shop"));
        assert_eq!(found.join(OsStr::new(" ")), expect, "{orig_argv}");
    }

    /// The interpreter, how it was started, and how it is started again. `./bin/milepost` was started in a folder
    /// that may be another one by now.
    const STARTS: &str = "
        /usr/bin/python3.11 | python -m milepost serve app:app | /usr/bin/python3.11 -m milepost serve app:app
        /venv/bin/python | python3 -mmilepost serve ./app:app | /venv/bin/python -mmilepost serve ./app:app
        /usr/bin/python3.11 | python -Im milepost serve x | /usr/bin/python3.11 -Im milepost serve x
        /v/bin/python3 | /v/bin/python3 /v/bin/milepost serve a:a | /v/bin/python3 /v/bin/milepost serve a:a
        /v/bin/python3 | /v/bin/python3 ./bin/milepost serve -m x | /v/bin/python3 /srv/shop/./bin/milepost serve -m x
        venv/bin/python | venv/bin/python -m milepost serve a | /srv/shop/venv/bin/python -m milepost serve a
        /p | python -c import(milepost) serve a | /p -c import(milepost) serve a
        /p | python - serve a | /p - serve a
        /p | python -E -c x y | /p -E -c x y
        /p | python -X | /p -X
        /p | python | /p
    ";

    #[test]
    fn starts_the_same_program_with_the_same_interpreter() {
        for row in STARTS.trim().lines() {
            let (executable, rest) = row.trim().split_once(" | ").unwrap();
            let (orig_argv, expect) = rest.split_once(" | ").unwrap();
            check(executable, orig_argv, expect);
        }
    }

    #[test]
    fn keeps_the_options_of_the_interpreter() {
        let python = "/usr/bin/python3";
        for options in [
            "-X dev",
            "-Xdev",
            "-bX importtime -W error",
            "-B --check-hash-based-pycs always -u",
            "-OO -WX",
        ] {
            check(
                python,
                &format!("python3 {options} -m milepost serve x.y"),
                &format!("/usr/bin/python3 {options} -m milepost serve x.y"),
            );
            check(
                python,
                &format!("python3 {options} bin/milepost serve x.y"),
                &format!("/usr/bin/python3 {options} /srv/shop/bin/milepost serve x.y"),
            );
        }
    }

    #[test]
    fn finds_out_how_the_interpreter_was_started() {
        Python::initialize();
        Python::attach(|py| {
            let sys = py.import("sys").unwrap();
            let names = ["executable", "orig_argv"];
            let kept = names.map(|name| sys.getattr(name).unwrap());
            sys.setattr("executable", "/venv/bin/python").unwrap();
            let argv = ["python", "-X", "dev", "bin/m", "serve", "\u{fc}:app"];
            sys.setattr("orig_argv", argv).unwrap();
            let found = own(py, Path::new("/srv"));
            sys.setattr("executable", "").unwrap();
            let homeless = own(py, Path::new("/srv"));
            for (name, value) in names.iter().zip(kept) {
                sys.setattr(*name, value).unwrap();
            }
            let expect = [
                "/venv/bin/python",
                "-X",
                "dev",
                "/srv/bin/m",
                "serve",
                "\u{fc}:app",
            ];
            assert_eq!(found, expect.map(OsString::from));
            assert_eq!(homeless[0], std::env::current_exe().unwrap());
        });
    }
}
