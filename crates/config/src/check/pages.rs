//! Do files and pages hold together? Fallbacks of mounts, cache rules, pages of errors.

use std::io;
use std::path::Path;

use super::super::builder::{Draft, Placed};
use super::super::fault::Origin;
use super::super::typed::{CacheRule, ErrorPage, StaticMount};
use super::shares::{is_mounted, mount_hint, said};
use super::{Check, cause};

/// Pages stay in memory, and go to clients that have asked for something else.
const ERROR_PAGE_BYTES_MAX: u64 = 1 << 20;

impl Check<'_> {
    /// Gives each mount its fallback.
    pub(super) fn fallbacks(&mut self, draft: &Draft, mounts: &mut [StaticMount]) {
        for Placed { value, origin } in &draft.fallbacks {
            let url = said(&value.url);
            if !is_mounted(draft, &value.url) {
                let text = format!("no folder is mounted at `{url}`");
                self.statement(origin.clone(), text, &mount_hint(draft, &value.url));
            }
            let mounted = mounts.iter_mut().filter(|mount| mount.url == value.url);
            // One that is mounted twice is a fault already.
            let Some(mount) = mounted.into_iter().next() else {
                continue;
            };
            if mount.fallback.is_some() {
                let text = format!("`{url}` has a fallback already");
                self.statement(origin.clone(), text, "give each folder one");
            }
            let file = mount.dir.join(&value.file);
            mount.fallback = Some(value.file.clone());
            if let Err(error) = (self.machine.file)(&file) {
                self.no_file(origin.clone(), &file, &error);
            }
        }
    }

    /// Rules in their order; one for the same glob could never count.
    pub(super) fn cache_rules(&mut self, draft: &Draft) -> Vec<CacheRule> {
        let mut rules: Vec<CacheRule> = Vec::new();
        for Placed { value, origin } in &draft.cache_rules {
            if rules.iter().any(|rule| rule.glob == value.glob) {
                let text = format!("`{}` has a rule already", value.glob);
                self.statement(
                    origin.clone(),
                    text,
                    "the first match counts: leave one out",
                );
            }
            rules.push(value.clone());
        }
        rules
    }

    /// Pages, the narrowest range first.
    pub(super) fn error_pages(&mut self, draft: &Draft) -> Vec<ErrorPage> {
        let mut pages: Vec<ErrorPage> = Vec::new();
        for Placed { value, origin } in &draft.error_pages {
            self.error_page_file(origin, &value.file);
            let range = (value.status_min, value.status_max);
            if pages
                .iter()
                .any(|page| (page.status_min, page.status_max) == range)
            {
                let text = match range {
                    (first, last) if first == last => format!("{first} has a page already"),
                    (first, last) => format!("{first}-{last} has a page already"),
                };
                self.statement(origin.clone(), text, "leave one out");
            }
            pages.push(value.clone());
        }
        pages.sort_by_key(|page| page.status_max - page.status_min);
        pages
    }

    fn error_page_file(&mut self, origin: &Origin, file: &Path) {
        match (self.machine.file)(file) {
            Ok(bytes) if bytes > ERROR_PAGE_BYTES_MAX => {
                let text = format!("file `{}` has {bytes} bytes", file.display());
                let hint = format!("a page has at most {ERROR_PAGE_BYTES_MAX}");
                self.statement(origin.clone(), text, &hint);
            }
            Ok(_) if !tells_its_type(file) => {
                let text = format!(
                    "the name of `{}` does not tell its media type",
                    file.display()
                );
                let hint = "give it an ending that browsers show, as `.html`";
                self.statement(origin.clone(), text, hint);
            }
            Ok(_) => {}
            Err(error) => self.no_file(origin.clone(), file, &error),
        }
    }

    fn no_file(&mut self, origin: Origin, file: &Path, error: &io::Error) {
        let text = format!("file `{}` cannot be read: {}", file.display(), cause(error));
        let hint = match error.kind() {
            io::ErrorKind::NotFound => {
                let dir = self.machine.current_dir.display();
                format!("relative paths start at `{dir}`")
            }
            io::ErrorKind::IsADirectory => "name the file, not its folder".to_owned(),
            _ => "the user that runs milepost needs the right to read it".to_owned(),
        };
        self.statement(origin, text, &hint);
    }
}

/// A page without a media type would be saved instead of shown.
fn tells_its_type(file: &Path) -> bool {
    let guess = mime_guess::from_path(file).first_raw();
    guess.is_some_and(|media_type| media_type != "application/octet-stream")
}
