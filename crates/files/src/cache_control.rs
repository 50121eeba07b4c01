//! Which `Cache-Control` a file gets: the first rule whose glob matches its URL path.
//!
//! Takes the configured rules, gives values for decoded paths; pure. `*` does not match a slash, `**` does.

use globset::{Candidate, GlobBuilder, GlobSet, GlobSetBuilder};

use config::typed::CacheRule;

/// All rules, ready to be matched.
#[derive(Debug)]
pub(super) struct CacheControl {
    globs: GlobSet,
    /// By the place of their glob.
    values: Vec<String>,
}

impl CacheControl {
    /// Reads the globs of `rules`.
    ///
    /// # Errors
    /// A glob is malformed, or all of them together are too large to be matched.
    pub(super) fn new(rules: &[CacheRule]) -> Result<CacheControl, globset::Error> {
        let mut globs = GlobSetBuilder::new();
        for rule in rules {
            globs.add(
                GlobBuilder::new(&rule.glob)
                    .literal_separator(true)
                    .build()?,
            );
        }
        Ok(CacheControl {
            globs: globs.build()?,
            values: rules.iter().map(|rule| rule.value.clone()).collect(),
        })
    }

    /// The value of the first rule that matches one of the paths: a folder's index file has two.
    pub(super) fn of(&self, paths: &[&[u8]]) -> Option<&str> {
        // Globs are in the order of the rules, so the least index is the first rule.
        let first = paths
            .iter()
            .flat_map(|path| self.globs.matches_candidate(&Candidate::from_bytes(path)))
            .min()?;
        Some(&self.values[first])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(rules: &[(&str, &str)]) -> Result<CacheControl, globset::Error> {
        let rules: Vec<_> = rules
            .iter()
            .map(|(glob, value)| CacheRule {
                glob: (*glob).to_owned(),
                value: (*value).to_owned(),
            })
            .collect();
        CacheControl::new(&rules)
    }

    #[test]
    fn the_first_rule_that_matches_counts() {
        let rules = rules(&[
            ("/s/**/*.{js,css}", "immutable"),
            ("/s/one.html", "no-cache"),
            ("/s/", "no-store"),
            ("/s/*", "max-age=60"),
            ("/s/[a-f]/**", "max-age=70"),
        ])
        .unwrap();
        for (path, expect) in [
            ("/s/a.js", Some("immutable")),
            ("/s/deep/er/a.css", Some("immutable")),
            ("/s/one.html", Some("no-cache")),
            ("/s/two.html", Some("max-age=60")),
            ("/s/deep/two.html", None),
            ("/s/a/b/two.html", Some("max-age=70")),
            ("/t/a.js", None),
            ("/s/A.JS", Some("max-age=60")),
            ("/s/a b\nc.js", Some("immutable")),
        ] {
            assert_eq!(rules.of(&[path.as_bytes()]), expect, "{path}");
        }
        assert_eq!(rules.of(&[b"/s/\xff.css"]), Some("immutable"));
        assert_eq!(rules.of(&[b"/s/", b"/s/index.html"]), Some("no-store"));
        assert_eq!(rules.of(&[b"/s/", b"/s/one.html"]), Some("no-cache"));
    }

    #[test]
    fn refuses_a_malformed_glob() {
        assert!(rules(&[("/s/[", "x")]).is_err());
        assert_eq!(rules(&[]).unwrap().of(&[b"/s/a"]), None);
    }
}
