//! Error pages: the looks of replies that the server gives by itself.
//!
//! Takes files once, at start-up, then replies; gives replies with another body, the same status and the
//! same other lines. Asked for refusals only: what an application answers is never touched, whatever its
//! status. Reads no file after start-up, so that a disk that stalls cannot hold a refusal up.
//!
//! `{status}` and `{reason}` in a page that is UTF-8 stand for `404` and `Not Found`; any other spelling,
//! with spaces for instance, stays as it is.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;

use bytes::Bytes;
use files::Part;
use files::Reply;
use files::ReplyBody;
use files::media_type;
use http::FieldLines;
use http::SharedFields;

use config::failure::StartFault;
use config::failure::plain;
use config::typed::ErrorPage;

/// Largest file that is taken for a page.
const PAGE_BYTES_MAX: u64 = 1 << 20;
/// Statuses that a page may be for.
const STATUS_MIN: u16 = 400;
const STATUSES_LEN: usize = 200;

/// Fields that describe the old body.
const BODY_FIELDS: [&str; 6] = [
    "content-type",
    "content-length",
    "content-encoding",
    "content-language",
    "etag",
    "last-modified",
];

/// The error pages of one process.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    sources: Vec<Source>,
    /// Index of the source for each status from 400 on; empty when there is no page at all.
    by_status: Vec<Option<usize>>,
    /// Pages as they are sent, made when a status is given for the first time.
    made: Vec<OnceLock<Page>>,
}

/// The page of one status.
#[derive(Debug)]
pub(crate) struct Page {
    /// Value of `Content-Type`.
    pub(crate) content_type: Bytes,
    /// The whole body.
    pub(crate) body: Bytes,
}

/// A page as its file has it.
#[derive(Debug)]
struct Source {
    content_type: Bytes,
    text: Bytes,
    /// Whether status or reason have a place in it.
    has_places: bool,
}

impl Pages {
    /// Reads all files. Of several pages for a status the one with the narrowest range counts, of equally
    /// narrow ones the first; statuses below 400 and above 599 have none.
    ///
    /// # Errors
    /// The first file that is not there, may not be read, is no regular file, is larger than 1 MiB, or
    /// whose name does not tell what it is.
    pub(crate) fn open(pages: &[ErrorPage]) -> Result<Pages, StartFault> {
        if pages.is_empty() {
            return Ok(Pages::default());
        }
        let sources = pages
            .iter()
            .map(|page| Source::read(&page.file))
            .collect::<Result<Vec<_>, _>>()?;
        let narrowest = |status: u16| {
            let fitting = (0..pages.len())
                .filter(|at| (pages[*at].status_min..=pages[*at].status_max).contains(&status));
            fitting.min_by_key(|at| pages[*at].status_max - pages[*at].status_min)
        };
        let by_status = (STATUS_MIN..).take(STATUSES_LEN).map(narrowest).collect();
        let made = (0..STATUSES_LEN).map(|_| OnceLock::new()).collect();
        Ok(Pages {
            sources,
            by_status,
            made,
        })
    }

    /// The page for `status`.
    pub(crate) fn page(&self, status: u16) -> Option<&Page> {
        let at = usize::from(status.checked_sub(STATUS_MIN)?);
        let source = &self.sources[(*self.by_status.get(at)?)?];
        Some(self.made[at].get_or_init(|| source.page(status)))
    }

    /// Gives `reply` the page of its status, if there is one, as body.
    pub(crate) fn replace_body(&self, reply: Reply) -> Reply {
        let Some(page) = self.page(reply.status) else {
            return reply;
        };
        Reply {
            status: reply.status,
            fields: page.fields(&reply.fields),
            body: ReplyBody::One(Part::Memory(page.body.clone())),
        }
    }
}

impl Page {
    /// The fields of a reply whose fields were `old`.
    fn fields(&self, old: &SharedFields) -> SharedFields {
        let mut fields = FieldLines::with_capacity(old.as_bytes().len() + 64);
        fields.push(b"Content-Type", &self.content_type);
        fields.push_decimal(b"Content-Length", self.body.len() as u64);
        for (name, value) in old.iter() {
            let is_of_body = BODY_FIELDS
                .iter()
                .any(|known| known.as_bytes().eq_ignore_ascii_case(name));
            if !is_of_body {
                fields.push(name, value);
            }
        }
        fields.freeze()
    }
}

impl Source {
    fn read(file: &Path) -> Result<Source, StartFault> {
        let fault = |cause: &str, hint: Option<&str>| StartFault {
            what: format!("cannot use the error page `{}`", file.display()),
            cause: cause.to_owned(),
            hint: hint.map(str::to_owned),
        };
        let system = |error: io::Error| fault(&plain(&error), None);
        // Opening a pipe would wait for its writer.
        if !fs::metadata(file).map_err(system)?.is_file() {
            return Err(fault("it is not a regular file", None));
        }
        let mut text = Vec::new();
        File::open(file)
            .and_then(|open| open.take(PAGE_BYTES_MAX + 1).read_to_end(&mut text))
            .map_err(system)?;
        if text.len() as u64 > PAGE_BYTES_MAX {
            let hint = "put images and styles into files of their own, below a `--static` folder";
            return Err(fault("it is larger than 1 MiB", Some(hint)));
        }
        let content_type = media_type::of_path(file.as_os_str().as_bytes())
            .parts()
            .concat();
        if content_type == b"application/octet-stream" {
            let hint = "give it an ending that browsers show, such as `.html`";
            return Err(fault("its name does not tell its media type", Some(hint)));
        }
        Ok(Source {
            content_type: content_type.into(),
            has_places: places(&text).is_some(),
            text: text.into(),
        })
    }

    fn page(&self, status: u16) -> Page {
        let filled = match places(&self.text).filter(|_| self.has_places) {
            Some(text) => text
                .replace("{status}", &status.to_string())
                .replace("{reason}", http::reason(status))
                .into(),
            None => self.text.clone(),
        };
        Page {
            content_type: self.content_type.clone(),
            body: filled,
        }
    }
}

/// The page as text, if status or reason have a place in it.
fn places(text: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(text).ok()?;
    ["{status}", "{reason}"]
        .iter()
        .any(|place| text.contains(place))
        .then_some(text)
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    /// A folder with files, and the pages for ranges of statuses made of them.
    fn open(files: &[(&str, &[u8], u16, u16)]) -> Result<Pages, StartFault> {
        let dir = TempDir::new().unwrap();
        let pages: Vec<ErrorPage> = files
            .iter()
            .map(|(name, text, status_min, status_max)| {
                let file = dir.path().join(name);
                fs::write(&file, text).unwrap();
                ErrorPage {
                    status_min: *status_min,
                    status_max: *status_max,
                    file,
                }
            })
            .collect();
        Pages::open(&pages)
    }

    fn refusal(status: u16, old: &[(&str, &str)]) -> Reply {
        let mut fields = FieldLines::new();
        for (name, value) in old {
            fields.push(name.as_bytes(), value.as_bytes());
        }
        Reply {
            status,
            fields: fields.freeze(),
            body: ReplyBody::One(Part::Memory(Bytes::from_static(b"old"))),
        }
    }

    fn body(reply: &Reply) -> Vec<u8> {
        match &reply.body {
            ReplyBody::Empty => Vec::new(),
            ReplyBody::One(Part::Memory(data)) => data.to_vec(),
            other => panic!("{other:?}"),
        }
    }

    fn page(pages: &Pages, status: u16) -> Option<String> {
        let page = pages.page(status)?;
        Some(String::from_utf8(page.body.to_vec()).unwrap())
    }

    #[test]
    fn replaces_the_body_and_what_tells_of_it() {
        let pages = open(&[("a.html", b"<p>busy", 503, 503)]).unwrap();
        let old = [
            ("Content-Type", "text/plain"),
            ("Retry-After", "7"),
            ("CONTENT-LENGTH", "3"),
            ("ETag", "\"x\""),
            ("Content-Encoding", "gzip"),
            ("X-Content-Type", "y"),
        ];
        let reply = pages.replace_body(refusal(503, &old));
        assert_eq!(reply.status, 503);
        assert_eq!(
            String::from_utf8_lossy(reply.fields.as_bytes()),
            "Content-Type: text/html; charset=utf-8\r\nContent-Length: 7\r\nRetry-After: 7\r\n\
             X-Content-Type: y\r\n"
        );
        assert_eq!(body(&reply), b"<p>busy");
    }

    #[test]
    fn the_narrowest_range_counts() {
        let pages = open(&[
            ("all.html", b"all", 400, 599),
            ("5xx.html", b"5xx", 500, 599),
            ("503.html", b"503", 503, 503),
            ("again.html", b"again", 503, 503),
        ])
        .unwrap();
        for (status, expect) in [
            (400, Some("all")),
            (499, Some("all")),
            (500, Some("5xx")),
            (503, Some("503")),
            (599, Some("5xx")),
            (0, None),
            (399, None),
            (600, None),
        ] {
            assert_eq!(page(&pages, status).as_deref(), expect, "{status}");
        }
    }

    #[test]
    fn replies_without_a_page_stay_as_they_are() {
        for pages in [
            open(&[("a.html", b"x", 200, 404)]).unwrap(),
            Pages::default(),
        ] {
            for status in [200, 304, 399, 405] {
                let reply = pages.replace_body(refusal(status, &[("Content-Length", "3")]));
                assert_eq!(body(&reply), b"old", "{status}");
                assert_eq!(reply.fields.as_bytes(), b"Content-Length: 3\r\n");
            }
        }
    }

    #[test]
    fn status_and_reason_have_their_places() {
        let text = "<h1>{status}</h1>{reason} { status } {Status} {{status}} é";
        let pages = open(&[("a.html", text.as_bytes(), 400, 599)]).unwrap();
        let expect = "<h1>404</h1>Not Found { status } {Status} {404} é";
        assert_eq!(page(&pages, 404).as_deref(), Some(expect));
        let expect = "<h1>599</h1> { status } {Status} {599} é";
        assert_eq!(page(&pages, 599).as_deref(), Some(expect));
        let reply = pages.replace_body(refusal(404, &[]));
        let length = body(&reply).len().to_string();
        assert_eq!(reply.fields.get(b"Content-Length"), Some(length.as_bytes()));
    }

    #[test]
    fn what_is_not_text_has_no_places() {
        let pages = open(&[("a.png", b"\xff{status}", 404, 404)]).unwrap();
        let page = pages.page(404).unwrap();
        assert_eq!(&page.body[..], b"\xff{status}");
        assert_eq!(&page.content_type[..], b"image/png");
    }

    #[test]
    fn a_page_without_places_is_held_once() {
        let pages = open(&[("a.html", b"one", 400, 599)]).unwrap();
        let at = |status| pages.page(status).unwrap().body.as_ptr();
        assert_eq!(at(404), at(500));
    }

    #[test]
    fn refuses_what_is_no_page() {
        let largest = vec![b'x'; PAGE_BYTES_MAX as usize];
        assert!(open(&[("a.html", &largest, 404, 404)]).is_ok());
        let too_large = [&largest[..], b"x"].concat();
        let cause = |name: &str, text: &[u8]| open(&[(name, text, 404, 404)]).unwrap_err().cause;
        assert_eq!(cause("a.html", &too_large), "it is larger than 1 MiB");
        assert_eq!(cause("page", b"x"), "its name does not tell its media type");

        let at = |file: &Path| {
            let page = ErrorPage {
                status_min: 404,
                status_max: 404,
                file: file.to_owned(),
            };
            Pages::open(&[page]).unwrap_err()
        };
        let dir = TempDir::new().unwrap();
        assert_eq!(at(dir.path()).cause, "it is not a regular file");
        let missing = dir.path().join("404.html");
        assert_eq!(
            at(&missing).to_string(),
            format!(
                "cannot use the error page `{}`: No such file or directory",
                missing.display()
            )
        );
    }
}
