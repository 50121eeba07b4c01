//! Which files an application was imported from, for whoever watches them.
//!
//! Takes the interpreter's table of modules, gives paths. Imports nothing of the application and calls no
//! code of its modules: some of them only pretend to be modules.

use std::ffi::CStr;
use std::path::PathBuf;

use pyo3::conversion::FromPyObjectOwned;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Bytes of all names together.
const NAMES_BYTES_MAX: usize = 32 << 10;

/// Files of imported modules, sorted, without the standard library, installed packages, Milepost and the
/// program that was started.
pub(crate) fn files(py: Python<'_>) -> PyResult<Vec<PathBuf>> {
    let script = c"
import os, sys, sysconfig, types

library = {os.path.join(os.path.realpath(path), '')
           for name, path in sysconfig.get_paths().items() if name in ('stdlib', 'platstdlib')}
installed = {'site-packages', 'dist-packages'}

def is_own(path):
    real = os.path.realpath(path)
    parts = set(path.split(os.sep)) | set(real.split(os.sep))
    return not (installed & parts or any(real.startswith(folder) for folder in library))

found = set()
for name, module in list(sys.modules.items()):
    if name == '__main__' or name.partition('.')[0] == 'milepost' or not isinstance(module, types.ModuleType):
        continue
    path = types.ModuleType.__getattribute__(module, '__dict__').get('__file__')
    if isinstance(path, str):
        path = os.path.abspath(path)
        if is_own(path) and os.path.isfile(path):
            found.add(path)
found = sorted(found)
";
    // One namespace: the function looks for its names where the script put them.
    let found = run_script(&PyDict::new(py), script)?;
    Ok(fitting(found, NAMES_BYTES_MAX))
}

/// Runs `script` with these names, and gives what it calls `found`.
pub(crate) fn run_script<'py, T>(names: &Bound<'py, PyDict>, script: &CStr) -> PyResult<T>
where
    T: FromPyObjectOwned<'py, Error = PyErr>,
{
    names.py().run(script, Some(names), None)?;
    names.as_any().get_item("found")?.extract()
}

/// Those that can be told to another process: as text, and in one message.
fn fitting(files: Vec<PathBuf>, bytes_max: usize) -> Vec<PathBuf> {
    let mut bytes = 0;
    let is_text = |path: &PathBuf| path.to_str().is_some();
    let texts = files.into_iter().filter(is_text);
    texts
        .take_while(|path| {
            bytes += path.as_os_str().len() + 1;
            bytes <= bytes_max
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn gives_no_more_than_fits_into_a_message() {
        let check = |bytes_max, expect: &[&str]| {
            let odd = PathBuf::from(OsStr::from_bytes(b"/\xff.py"));
            let files = vec!["/a.py".into(), odd, "/b.py".into(), "/c.py".into()];
            assert_eq!(
                fitting(files, bytes_max),
                expect.iter().map(PathBuf::from).collect::<Vec<_>>()
            );
        };
        check(100, &["/a.py", "/b.py", "/c.py"]);
        check(12, &["/a.py", "/b.py"]);
        check(11, &["/a.py"]);
        check(0, &[]);
    }

    #[test]
    fn names_what_somebody_edits_and_nothing_that_was_installed() {
        let _turn = crate::import::turn_on_the_path();
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let write = |name: &str, text: &str| {
            let path = root.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write(
            "m_shop/__init__.py",
            "import m_shop.cart, json, m_installed\n",
        );
        write("m_shop/cart.py", "");
        // A module that becomes something else while it is imported, as lazy ones do.
        write(
            "m_shop/lazy.py",
            "import sys\nclass Lazy:\n    def __getattr__(self, name): raise SystemExit\nsys.modules[__name__] = Lazy()\n",
        );
        write("m_shop/unused.py", "");
        write("lib/site-packages/m_installed.py", "");
        Python::initialize();
        Python::attach(|py| {
            let names = PyDict::new(py);
            names.set_item("root", &root).unwrap();
            let import = c"
import os, sys
sys.path[:0] = [str(root), os.path.join(root, 'lib', 'site-packages')]
try:
    import m_shop, m_shop.lazy
finally:
    del sys.path[:2]
";
            py.run(import, Some(&names), None).unwrap();
            let mut found = files(py).unwrap();
            // Other tests import modules as well.
            found.retain(|path| path.starts_with(&root));
            let forget = c"
for name in [name for name in sys.modules if name.partition('.')[0] in ('m_shop', 'm_installed')]:
    del sys.modules[name]
";
            py.run(forget, Some(&names), None).unwrap();
            let expect = ["m_shop/__init__.py", "m_shop/cart.py"].map(|name| root.join(name));
            assert_eq!(found, expect);
            let json: PathBuf = py
                .import("json")
                .and_then(|json| json.getattr("__file__")?.extract())
                .unwrap();
            assert!(!files(py).unwrap().contains(&json));
        });
    }
}
