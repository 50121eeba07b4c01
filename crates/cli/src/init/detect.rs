//! Which application a folder holds, as far as the texts of its modules say.
//!
//! Takes a folder, gives a name that `milepost serve` takes. Imports nothing.

use std::fs;
use std::path::Path;

/// Modules that usually hold an application, the most telling first.
const MODULES: [&str; 5] = ["wsgi", "app", "main", "application", "server"];
/// Names of applications and of what makes them, the preferred first.
const ATTRIBUTES: [&str; 2] = ["application", "app"];
const FACTORIES: [&str; 2] = ["create_app", "make_app"];

/// What an application is made with, where that matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framework {
    Django,
    Other,
}

/// The application of a folder, as `module:attribute`.
pub(super) fn application(folder: &Path) -> Option<(String, Framework)> {
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
    // First, because a Django project has modules with the other names as well.
    if let Some(found) = read("manage.py").and_then(|text| django(&text)) {
        return Some((found, Framework::Django));
    }
    let of_module = MODULES.iter().find_map(|module| {
        let text = read(&format!("{module}.py"))?;
        Some(format!("{module}:{}", attribute(&text)?))
    });
    let found = of_module.or_else(|| {
        packages(folder).into_iter().find_map(|package| {
            ["wsgi", "app", "__init__"].iter().find_map(|module| {
                let attribute = attribute(&read(&format!("{package}/{module}.py"))?)?;
                Some(match *module {
                    "__init__" => format!("{package}:{attribute}"),
                    module => format!("{package}.{module}:{attribute}"),
                })
            })
        })
    });
    found.map(|app| (app, Framework::Other))
}

/// What was probably meant by the name of a module that holds no application: the `wsgi` module of the package, or of
/// the Django project in the folder.
pub(crate) fn meant(module: &str, folder: &Path) -> Option<String> {
    let is_package = !module.contains('.') && folder.join(module).join("wsgi.py").is_file();
    if is_package {
        return Some(format!("{module}.wsgi"));
    }
    match application(folder)? {
        (app, Framework::Django) => {
            let name = app.strip_suffix(":application").unwrap_or(&app);
            (name != module).then(|| name.to_owned())
        }
        (_, Framework::Other) => None,
    }
}

/// The application of a Django project, by the settings that its `manage.py` names.
fn django(manage: &str) -> Option<String> {
    let (_, rest) = manage.split_once("DJANGO_SETTINGS_MODULE")?;
    let (_, rest) = rest.split_once(',')?;
    let quote = rest.find(['"', '\''])?;
    let settings = rest[quote + 1..].split(['"', '\'']).next()?;
    let (package, _) = settings.split_once('.')?;
    Some(format!("{package}.wsgi:application"))
}

/// The name that a module's text gives to an application at the beginning of a line.
fn attribute(text: &str) -> Option<String> {
    let defines = |name: &str| text.lines().any(|line| gives(line, name));
    let makes = |name: &str| {
        text.lines()
            .any(|line| line.starts_with(&format!("def {name}(")))
    };
    // By its text and not by an import: a module may do anything when it is imported.
    let attribute = ATTRIBUTES.iter().find(|name| defines(name));
    attribute.map(|name| (*name).to_owned()).or_else(|| {
        let factory = FACTORIES.iter().find(|name| makes(name))?;
        Some(format!("{factory}()"))
    })
}

/// Whether a line assigns, defines or imports a name.
fn gives(line: &str, name: &str) -> bool {
    let follows = |prefix: &str, ends: &[char]| {
        let rest = line
            .strip_prefix(prefix)
            .and_then(|rest| rest.strip_prefix(name));
        rest.is_some_and(|rest| rest.trim_start().starts_with(ends))
    };
    let imports = || {
        let (_, names) = line.strip_prefix("from ")?.split_once(" import ")?;
        let mut names = names
            .split(',')
            .filter_map(|part| part.split_whitespace().last());
        Some(names.any(|imported| imported == name))
    };
    // At the beginning of the line alone: what is indented belongs to a function or a branch.
    let is_assigned = follows("", &['=', ':']) && !line.contains("==");
    is_assigned || follows("def ", &['(']) || imports().unwrap_or(false)
}

fn packages(folder: &Path) -> Vec<String> {
    let mut packages: Vec<String> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.path().join("__init__.py").is_file())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    packages.sort();
    packages
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files with their texts, and the application.
    const FOLDERS: &str = r#"
        app.py: app = Flask(__name__) | app:app
        app.py: app: Flask = Flask(__name__) | app:app
        wsgi.py: from shop import app as application ; app.py: app = 1 | wsgi:application
        wsgi.py: from shop import create_app, app | wsgi:app
        main.py: def app(environ, start_response): | main:app
        app.py: def create_app(name=None): | app:create_app()
        shop/__init__.py: def create_app(): | shop:create_app()
        shop/__init__.py: ; shop/wsgi.py: application = 3 | shop.wsgi:application
        manage.py: os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mysite.settings") ; app.py: app = 1 | mysite.wsgi:application
        manage.py: print() ; app.py: app = 1 | app:app
        app.py: apple = 3 | none
        app.py: application == 4 | none
        tools.py: app = 1 | none
    "#;

    #[test]
    fn names_the_module_that_was_meant() {
        let folder = tempfile::tempdir().unwrap();
        let check = |module: &str, expect: Option<&str>| {
            assert_eq!(meant(module, folder.path()).as_deref(), expect, "{module}");
        };
        check("mysite", None);
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("mysite/wsgi.py", "application = 1\n");
        check("mysite", Some("mysite.wsgi"));
        check("wsgi", None);
        let manage = "os.environ.setdefault('DJANGO_SETTINGS_MODULE', 'mysite.settings')\n";
        write("manage.py", manage);
        for module in ["wsgi", "manage", "mysite.wsg", "mysite"] {
            check(module, Some("mysite.wsgi"));
        }
        check("mysite.wsgi", None);
    }

    #[test]
    fn finds_what_a_folder_holds() {
        for row in FOLDERS.trim().lines() {
            let (files, expect) = row.trim().rsplit_once(" | ").unwrap();
            let folder = tempfile::tempdir().unwrap();
            for file in files.split(" ; ") {
                let (name, text) = file.split_once(':').unwrap();
                let path = folder.path().join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, format!("import os\n{}\n", text.trim())).unwrap();
            }
            let found = application(folder.path()).map_or("none".to_owned(), |(app, _)| app);
            assert_eq!(found, expect, "{row}");
        }
    }
}
