//! What the words in braces mean for one server, and a folder of its own.
//!
//! Takes texts, gives texts. Only known words are replaced: configurations and programs have braces too.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::{LoadText, Programs, ServerSpec};
use crate::engine::Fault;

/// What the words in braces mean.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) port: u16,
    pub(super) folder: PathBuf,
    pub(super) cpus: String,
    pub(super) programs: Programs,
    /// The server's first process, once it is there.
    pub(super) pid: Option<u32>,
}

impl Place {
    /// A text with its words replaced.
    pub(super) fn text(&self, text: &str) -> String {
        let mut replaced = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once('{') {
            replaced.push_str(before);
            let word = behind.split_once('}');
            match word.and_then(|(word, after)| Some((self.meaning(word)?, after))) {
                Some((meaning, after)) => {
                    replaced.push_str(&meaning);
                    rest = after;
                }
                None => {
                    replaced.push('{');
                    rest = behind;
                }
            }
        }
        replaced + rest
    }

    /// Arguments; one that is `{milepost}` becomes as many as that has words.
    pub(super) fn argv(&self, argv: &[String]) -> Vec<String> {
        let words = |argument: &String| match argument.as_str() {
            "{milepost}" => self.programs.milepost.clone(),
            text => vec![self.text(text)],
        };
        argv.iter().flat_map(words).collect()
    }

    /// A load with its words replaced.
    pub(super) fn load(&self, load: &LoadText) -> LoadText {
        load.mapped(|text| self.text(text))
    }

    fn meaning(&self, word: &str) -> Option<String> {
        Some(match word {
            "port" => self.port.to_string(),
            "folder" => self.folder.display().to_string(),
            "cpus" => self.cpus.clone(),
            "python" => self.programs.python.clone(),
            "milepost" => {
                let words = self.programs.milepost.iter();
                words.map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
            }
            "pid" => self.pid?.to_string(),
            _ => return None,
        })
    }
}

/// For a shell.
fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+=:@%".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// A folder that is removed with everything in it.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// A new one among the temporary files. Servers that give up being root have to be able to read in it.
    pub(super) fn new() -> Result<Folder, Fault> {
        let above = std::env::temp_dir();
        loop {
            let number = fastrand::u32(..);
            let path = above.join(format!(
                "milepost-bench-{}-{number:08x}",
                std::process::id()
            ));
            match DirBuilder::new().mode(0o755).create(&path) {
                Ok(()) => return Ok(Folder { path }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(Fault::with_hint(
                        format!("`{}`: {error}", path.display()),
                        "TMPDIR names another folder for files that servers need",
                    ));
                }
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the files of a server, their words replaced.
    pub(super) fn fill(&self, spec: &ServerSpec, place: &Place) -> Result<(), Fault> {
        for (name, text) in &spec.files {
            let path = self.path.join(name);
            let above = path.parent().unwrap_or(&self.path);
            let written =
                fs::create_dir_all(above).and_then(|()| fs::write(&path, place.text(text)));
            written.map_err(|error| Fault::new(format!("`{}`: {error}", path.display())))?;
        }
        Ok(())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed is left to whoever looks after temporary files.
        let _ = fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> Place {
        Place {
            port: 8_080,
            folder: "/tmp/of it".into(),
            cpus: "0,1".to_owned(),
            programs: Programs {
                milepost: ["/usr/bin/python3", "-m", "mile post"]
                    .map(str::to_owned)
                    .into(),
                python: "/usr/bin/python3".to_owned(),
            },
            pid: None,
        }
    }

    #[test]
    fn replaces_the_words_it_knows_and_no_other_braces() {
        for (text, expect) in [
            ("listen {port};", "listen 8080;"),
            ("{port}{port}", "80808080"),
            (
                "http { server { listen {port}; } }",
                "http { server { listen 8080; } }",
            ),
            ("{\"a\": {port}}", "{\"a\": 8080}"),
            ("{pid} {other} {", "{pid} {other} {"),
            ("{folder}/x {cpus}", "/tmp/of it/x 0,1"),
            (
                "exec {milepost} serve",
                "exec /usr/bin/python3 -m 'mile post' serve",
            ),
            ("", ""),
        ] {
            assert_eq!(place().text(text), expect);
        }
        let known = Place {
            pid: Some(7),
            ..place()
        };
        assert_eq!(known.text("{pid}"), "7");
    }

    #[test]
    fn gives_the_words_of_a_program_as_arguments() {
        let argv = ["{milepost}", "serve", "--bind", ":{port}"].map(str::to_owned);
        let expect = [
            "/usr/bin/python3",
            "-m",
            "mile post",
            "serve",
            "--bind",
            ":8080",
        ];
        assert_eq!(place().argv(&argv), expect);
    }

    #[test]
    fn leaves_no_folder() {
        let folder = Folder::new().expect("a folder");
        let path = folder.path().to_owned();
        let spec = ServerSpec {
            files: vec![("conf/a.conf".to_owned(), "port {port}".to_owned())],
            ..ServerSpec::default()
        };
        folder.fill(&spec, &place()).expect("files");
        let text = fs::read_to_string(path.join("conf/a.conf")).expect("a file");
        assert_eq!(text, "port 8080");
        drop(folder);
        assert!(!path.exists());
    }
}
