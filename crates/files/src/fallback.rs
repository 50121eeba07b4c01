//! What a request gets where its path names no file: a listing, the fallback of a single-page application,
//! or nothing.
//!
//! Takes a head and a path, gives a small value that a lookup can carry; pure.

use http::HeadView;

use super::accept;
use super::listing::ListingForm;
use super::media_type;
use super::mounts::{Mounts, RequestedPath};

/// What to do when there is no file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct FallbackChoice {
    /// List the folder that was asked for, in this form.
    pub(super) listing: Option<ListingForm>,
    /// Whether the mount's fallback page is sent.
    pub(super) page: FallbackPage,
}

/// Whether the fallback page suits a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum FallbackPage {
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

impl FallbackChoice {
    /// What `head` wants, where `asked` of `mount` names no file. Only what is configured is weighed, so
    /// that requests which are the same to a lookup have the same value.
    pub(super) fn of(
        head: HeadView<'_>,
        mounts: &Mounts,
        mount: usize,
        asked: &RequestedPath,
    ) -> FallbackChoice {
        let mut fallback = FallbackChoice::default();
        if mounts.has_listing() && asked.folder().is_some() {
            fallback.listing = Some(match accept::prefers_json(head) {
                true => ListingForm::Json,
                false => ListingForm::Html,
            });
        }
        if mounts.list[mount].fallback().is_some() {
            fallback.page = match asked.folder() {
                Some(_) => FallbackPage::ByPath,
                None if media_type::extension(asked.file()).is_none() => FallbackPage::ByPath,
                None if accept::names_html(head) => FallbackPage::ByAccept,
                None => FallbackPage::Unfit,
            };
        }
        fallback
    }
}

impl FallbackPage {
    /// The value of `Vary` for a fallback among whose siblings the choice depends on `siblings`.
    pub(super) fn vary(self, siblings: Option<&'static str>) -> Option<&'static str> {
        match (self, siblings) {
            (FallbackPage::ByAccept, Some(_)) => Some("Accept, Accept-Encoding"),
            (FallbackPage::ByAccept, None) => Some("Accept"),
            (_, siblings) => siblings,
        }
    }
}
