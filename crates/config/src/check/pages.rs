//! Do files and pages hold together? Fallbacks of mounts, cache rules, pages of errors.

use std::io;
use std::path::Path;

use super::shares::{is_mounted, mount_hint, said};
use super::{Check, cause};
use crate::builder::{Draft, Placed};
use crate::fault::Origin;
use crate::typed::{CacheRule, ErrorPage, StaticMount};

/// Pages stay in memory, and go to clients that have asked for something else.
const ERROR_PAGE_BYTES_MAX: u64 = 1 << 20;

impl Check<'_> {
    /// Gives each mount its fallback.
    pub(super) fn fallbacks(&mut self, draft: &Draft, mounts: &mut [StaticMount]) {
        for Placed { value, origin } in &draft.fallbacks {
            let url = said(&value.url);
            if !is_mounted(draft, &value.url) {
                let text = format!("no folder is mounted at `{url}`");
                self.statement(origin, text, mount_hint(draft, &value.url));
            }
            // One that is mounted twice is a fault already.
            let Some(mount) = mounts.iter_mut().find(|mount| mount.url == value.url) else {
                continue;
            };
            if mount.fallback.is_some() {
                let text = format!("`{url}` has a fallback already");
                self.statement(origin, text, "give each folder one");
            }
            // Also if the file is not there: a second fallback of this folder is a fault of its own.
            mount.fallback = Some(value.file.clone());
            self.file(origin, &mount.dir.join(&value.file));
        }
    }

    /// Rules in their order; one for the same glob could never count.
    pub(super) fn cache_rules(&mut self, draft: &Draft) -> Vec<CacheRule> {
        let mut rules: Vec<CacheRule> = Vec::new();
        for Placed { value, origin } in &draft.cache_rules {
            // Only equal texts: whether one glob covers another is not decided here.
            if rules.iter().any(|rule| rule.glob == value.glob) {
                let text = format!("`{}` has a rule already", value.glob);
                self.statement(origin, text, "the first match counts: leave one out");
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
            let (status_min, status_max) = value.status;
            assert!(status_min <= status_max, "a page for no status");
            let mut others = pages.iter();
            if others.any(|page| (page.status_min, page.status_max) == value.status) {
                let text = match status_min == status_max {
                    true => format!("{status_min} has a page already"),
                    false => format!("{status_min}-{status_max} has a page already"),
                };
                self.statement(origin, text, "leave one out");
            }
            let file = value.file.clone();
            pages.push(ErrorPage {
                status_min,
                status_max,
                file,
            });
        }
        // The sort is stable: of ranges of one width the first that was written counts.
        pages.sort_by_key(|page| page.status_max - page.status_min);
        pages
    }

    fn error_page_file(&mut self, origin: &Origin, file: &Path) {
        let name = file.display();
        match self.file(origin, file) {
            Some(bytes) if bytes > ERROR_PAGE_BYTES_MAX => {
                let text = format!("file `{name}` has {bytes} bytes");
                let hint = format!("a page has at most {ERROR_PAGE_BYTES_MAX}");
                self.statement(origin, text, hint);
            }
            Some(_) if !tells_its_type(file) => {
                let text = format!("the name of `{name}` does not tell its media type");
                let hint = "give it an ending that browsers show, as `.html`";
                self.statement(origin, text, hint);
            }
            _ => {}
        }
    }

    /// The bytes of a file, which must be one that can be read.
    pub(super) fn file(&mut self, origin: &Origin, file: &Path) -> Option<u64> {
        // Now, and as this user: a missing page would be found only when the first error has to be shown.
        let error = match (self.machine.file)(file) {
            Ok(bytes) => return Some(bytes),
            Err(error) => error,
        };
        let text = format!(
            "file `{}` cannot be read: {}",
            file.display(),
            cause(&error)
        );
        let hint = match error.kind() {
            io::ErrorKind::IsADirectory => "name the file, not its folder".to_owned(),
            _ => self.right_hint(&error, "read it"),
        };
        self.statement(origin, text, hint);
        None
    }
}

/// A page without a media type would be saved instead of shown.
fn tells_its_type(file: &Path) -> bool {
    let guess = mime_guess::from_path(file).first_raw();
    guess.is_some_and(|media_type| media_type != "application/octet-stream")
}
