//! What a request gets where its path names no file: a listing, the fallback of a single-page application,
//! or nothing.
//!
//! Takes a head and a path, gives a small value that a look can carry; pure.

use wire::HeadView;

use super::accept;
use super::kind;
use super::listing::Form;
use super::site::{Asked, Site};

/// What to do when there is no file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Instead {
    /// List the folder that was asked for, in this form.
    pub(super) listing: Option<Form>,
    /// Send the mount's fallback.
    pub(super) fallback: Fallback,
}

/// Whether a fallback does for a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Fallback {
    /// There is none.
    #[default]
    None,
    /// It does not: a script that is missing must not come as a page.
    Unfit,
    /// It does, by the path: its last segment has no extension.
    ByPath,
    /// It does because the client names HTML.
    ByAccept,
}

impl Instead {
    /// What `head` wants, where `asked` of `mount` names no file. Only what is configured is weighed, so
    /// that requests which are the same to a look have the same value.
    pub(super) fn of(head: HeadView<'_>, site: &Site, mount: usize, asked: &Asked) -> Instead {
        let mut instead = Instead::default();
        if site.has_listing() && asked.folder().is_some() {
            instead.listing = Some(match accept::prefers_json(head) {
                true => Form::Json,
                false => Form::Html,
            });
        }
        if site.mounts[mount].fallback().is_some() {
            instead.fallback = match asked.folder() {
                Some(_) => Fallback::ByPath,
                None if kind::extension(asked.file()).is_none() => Fallback::ByPath,
                None if accept::names_html(head) => Fallback::ByAccept,
                None => Fallback::Unfit,
            };
        }
        instead
    }
}

impl Fallback {
    /// The value of `Vary` for a fallback among whose siblings the choice depends on `siblings`.
    pub(super) fn vary(self, siblings: Option<&'static str>) -> Option<&'static str> {
        match (self, siblings) {
            (Fallback::ByAccept, Some(_)) => Some("Accept, Accept-Encoding"),
            (Fallback::ByAccept, None) => Some("Accept"),
            (_, siblings) => siblings,
        }
    }
}
