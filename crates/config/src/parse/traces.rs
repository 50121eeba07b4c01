//! Texts of the settings of traces, and the variables of OpenTelemetry.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::{Hint, hinted, value};
use crate::parse::upstreams::server_url;
use crate::typed::{TraceShare, UpstreamServer};

pub(crate) const TRACES: &str = "`off`, `ids`, `otel` or a URL (as `http://127.0.0.1:4318`)";
/// The path of a collector (OTLP specification, OTLP/HTTP request).
const PATH: &str = "/v1/traces";
/// Where a collector listens on this machine.
const USUAL: &str = "http://localhost:4318";
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";

/// What is to become of traces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum TracesText {
    #[default]
    Off,
    Ids,
    /// The variables of OpenTelemetry name the collector.
    Otel,
    Collector(CollectorUrl),
}

/// Where spans are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CollectorUrl {
    pub server: UpstreamServer,
    pub path: String,
}

/// What the variables of OpenTelemetry say; what cannot be understood is ignored, as the specification asks.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct OtelVariables {
    pub collector: Option<CollectorUrl>,
    pub headers: Vec<(String, String)>,
    pub resource: Vec<(String, String)>,
    pub ca: Option<PathBuf>,
    /// `None`: not said.
    pub share: Option<TraceShare>,
    /// What is ignored, and why.
    pub notes: Vec<String>,
}

pub(crate) fn traces(text: &str) -> Result<TracesText, Hint> {
    Ok(match text.trim() {
        "off" => TracesText::Off,
        "ids" => TracesText::Ids,
        "otel" => TracesText::Otel,
        "on" | "true" | "yes" => {
            return hinted("the collector's URL, or `otel` for the variables of OpenTelemetry");
        }
        text => TracesText::Collector(collector(text, "")?),
    })
}

/// A share in percent.
pub(crate) fn sample(text: &str) -> Result<TraceShare, Hint> {
    value::percent(text)
        .map(TraceShare::ParentBased)
        .ok_or_else(|| {
            let share: f64 = text.trim().parse().ok()?;
            let is_share = (0.0..=1.0).contains(&share);
            is_share.then(|| format!("in percent: `{}%`", share * 100.0))
        })
}

/// A collector's URL. `more` is what its path gets; without a path at all, it is that of the specification.
fn collector(text: &str, more: &str) -> Result<CollectorUrl, Hint> {
    let begin = text.find("://").map_or(0, |at| at + 3);
    if text[begin..].contains(['?', '#']) {
        return hinted("the URL of a collector has no query and no fragment");
    }
    let path_at = match text.starts_with("unix:") {
        true => None,
        false => text[begin..].find('/').map(|at| begin + at),
    };
    let (server, path) = text.split_at(path_at.unwrap_or(text.len()));
    if !path.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(None);
    }
    let path = match path.trim_end_matches('/') {
        "" => PATH.to_owned(),
        path => format!("{path}{more}"),
    };
    let server = server_url(server)?;
    Ok(CollectorUrl { server, path })
}

/// Where a collector is, unless something else is said.
pub(crate) fn usual_collector() -> CollectorUrl {
    collector(USUAL, "").expect("the usual URL is one")
}

/// The share that `OTEL_TRACES_SAMPLER` and its argument name.
fn otel_share(environment: &BTreeMap<String, String>) -> Option<f64> {
    let sampler = environment.get("OTEL_TRACES_SAMPLER")?.trim();
    let sampler = sampler.strip_prefix("parentbased_").unwrap_or(sampler);
    let share = match sampler {
        "always_on" => 1.0,
        "always_off" => 0.0,
        "traceidratio" => match environment.get("OTEL_TRACES_SAMPLER_ARG") {
            None => 1.0,
            Some(share) => share.trim().parse().ok()?,
        },
        _ => return None,
    };
    (0.0..=1.0).contains(&share).then_some(share)
}

impl OtelVariables {
    pub(crate) fn read(environment: &BTreeMap<String, String>) -> Self {
        let said = |name: &str| {
            let text = environment.get(name).map(|text| text.trim());
            text.filter(|text| !text.is_empty())
        };
        let mut read = OtelVariables::default();
        read.endpoint(said);
        for (name, is_resource) in [
            ("OTEL_RESOURCE_ATTRIBUTES", true),
            ("OTEL_EXPORTER_OTLP_HEADERS", false),
            ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", false),
        ] {
            let pairs = said(name).map_or_else(Vec::new, |text| read.pairs(name, text));
            match is_resource {
                true => read.resource = pairs,
                // The more specific variable replaces the other one.
                false if !pairs.is_empty() => read.headers = pairs,
                false => {}
            }
        }
        if let Some(name) = said("OTEL_SERVICE_NAME") {
            read.resource.retain(|(key, _)| key != "service.name");
            read.resource
                .push(("service.name".to_owned(), name.to_owned()));
        }
        read.headers(environment);
        let ca = said("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE");
        read.ca = ca
            .or_else(|| said("OTEL_EXPORTER_OTLP_CERTIFICATE"))
            .map(PathBuf::from);
        if let Some(sampler) = said("OTEL_TRACES_SAMPLER") {
            match otel_share(environment) {
                Some(share) => {
                    read.share = Some(match sampler.starts_with("parentbased_") {
                        true => TraceShare::ParentBased(share),
                        false => TraceShare::Ratio(share),
                    });
                }
                None => read.note(
                    "OTEL_TRACES_SAMPLER",
                    "no such sampler, or no such argument",
                ),
            }
        }
        let protocol = said("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
            .or_else(|| said("OTEL_EXPORTER_OTLP_PROTOCOL"));
        if protocol == Some("grpc") {
            read.note(
                "OTEL_EXPORTER_OTLP_PROTOCOL",
                "Milepost sends JSON over HTTP, which collectors take at port 4318",
            );
        }
        read
    }

    fn endpoint<'e>(&mut self, said: impl Fn(&str) -> Option<&'e str>) {
        for (name, more) in [(TRACES_ENDPOINT, ""), (ENDPOINT, PATH)] {
            let Some(text) = said(name) else { continue };
            match collector(text, more) {
                Ok(url) => self.collector = Some(url),
                Err(hint) => self.note(name, hint.as_deref().unwrap_or("it is no URL")),
            }
            return;
        }
    }

    /// `NAME=VALUE`, between commas; values may be percent-encoded (W3C Baggage).
    fn pairs(&mut self, variable: &str, text: &str) -> Vec<(String, String)> {
        let mut pairs = Vec::new();
        for pair in text.split(',').filter(|pair| !pair.trim().is_empty()) {
            let Some((name, value)) = pair.split_once('=') else {
                self.note(variable, "a part of it is not NAME=VALUE");
                continue;
            };
            let mut decoded = Vec::new();
            let value = value.trim().as_bytes();
            // A lone `%` is one: what writes variables is often a person.
            if !http::target::decode(value, &mut decoded) {
                decoded.extend_from_slice(value);
            }
            match String::from_utf8(decoded) {
                Ok(value) => pairs.push((name.trim().to_owned(), value)),
                Err(_) => self.note(variable, "a value is not UTF-8"),
            }
        }
        pairs
    }

    /// Leaves out headers that cannot be sent.
    fn headers(&mut self, environment: &BTreeMap<String, String>) {
        const OWN: [&str; 5] = [
            "host",
            "content-length",
            "content-type",
            "transfer-encoding",
            "connection",
        ];
        let is_fit = |(name, value): &(String, String)| {
            let lower = name.to_ascii_lowercase();
            let is_text = value.bytes().all(|byte| (b' '..=b'~').contains(&byte));
            super::is_token(name) && is_text && !OWN.contains(&lower.as_str())
        };
        let before = self.headers.len();
        self.headers.retain(is_fit);
        if self.headers.len() < before {
            let name = "OTEL_EXPORTER_OTLP_TRACES_HEADERS";
            let name = match environment.contains_key(name) {
                true => name,
                false => "OTEL_EXPORTER_OTLP_HEADERS",
            };
            // The value is not shown: it may be a password.
            self.note(name, "a header in it cannot be sent");
        }
    }

    fn note(&mut self, name: &str, why: &str) {
        self.notes.push(format!("`{name}` is ignored: {why}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> OtelVariables {
        OtelVariables::read(&environment(variables))
    }

    fn environment(variables: &[(&str, &str)]) -> BTreeMap<String, String> {
        let pairs = variables.iter();
        pairs
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    fn said(url: Option<CollectorUrl>) -> String {
        url.map_or_else(String::new, |url| {
            let scheme = if url.server.has_tls { "https" } else { "http" };
            format!("{scheme} {} {}", url.server.address, url.path)
        })
    }

    #[test]
    fn a_collector_has_the_path_of_the_specification_unless_it_names_one() {
        let check = |text: &str, expect: &str| {
            let TracesText::Collector(url) = traces(text).unwrap() else {
                panic!("{text} names a collector");
            };
            assert_eq!(said(Some(url)), expect, "{text}");
        };
        check("http://127.0.0.1:4318", "http 127.0.0.1:4318 /v1/traces");
        check("http://a:1/", "http a:1 /v1/traces");
        check("https://a.example/otlp/x", "https a.example:443 /otlp/x");
        check("unix:/run/otel.sock", "http unix:/run/otel.sock /v1/traces");
        for wrong in [
            "a:4318",
            "grpc://a:4317",
            "http://a/x y",
            "http://a/x?y",
            "on",
            "http://u:p@a/",
        ] {
            assert!(traces(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_variables_of_opentelemetry_mean_what_they_mean_elsewhere() {
        let check = |name: &str, text: &str, expect: &str| {
            assert_eq!(
                said(read(&[(name, text)]).collector),
                expect,
                "{name} {text}"
            );
        };
        check(ENDPOINT, "http://a:4318", "http a:4318 /v1/traces");
        check(ENDPOINT, "http://a:4318/x/", "http a:4318 /x/v1/traces");
        check(TRACES_ENDPOINT, "http://a:4318/x", "http a:4318 /x");
        let found = read(&[
            ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b, x = 2"),
            (
                "OTEL_RESOURCE_ATTRIBUTES",
                "service.name=old,deployment.environment=test",
            ),
            ("OTEL_SERVICE_NAME", "shop"),
        ]);
        let pairs = |all: &[(&str, &str)]| -> Vec<(String, String)> {
            environment(all).into_iter().collect()
        };
        assert_eq!(found.headers, pairs(&[("api-key", "a b"), ("x", "2")]));
        let resource = [("deployment.environment", "test"), ("service.name", "shop")];
        assert_eq!(found.resource, pairs(&resource));
        assert!(found.notes.is_empty());
    }

    #[test]
    fn what_cannot_be_understood_is_ignored_and_named_without_its_value() {
        let check = |name: &str, text: &str| {
            let found = read(&[(name, text)]);
            assert_eq!(found.notes.len(), 1, "{name} {text}");
            assert!(found.notes[0].contains(name), "{}", found.notes[0]);
            assert!(!found.notes[0].contains("secret"), "{}", found.notes[0]);
            assert!(found.headers.is_empty() && found.collector.is_none());
        };
        check(ENDPOINT, "a:4318");
        check("OTEL_EXPORTER_OTLP_HEADERS", "secret");
        check("OTEL_EXPORTER_OTLP_HEADERS", "x=secret%0d%0aHost: y");
        check("OTEL_EXPORTER_OTLP_HEADERS", "content-length=secret");
        check("OTEL_TRACES_SAMPLER", "secret");
        check("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
    }

    #[test]
    fn samplers_are_shares() {
        let check = |sampler: &str, argument: &str, expect: Option<TraceShare>| {
            let variables = [
                ("OTEL_TRACES_SAMPLER", sampler),
                ("OTEL_TRACES_SAMPLER_ARG", argument),
            ];
            let found = read(&variables).share;
            assert_eq!(found, expect, "{sampler} {argument}");
        };
        check("always_on", "", Some(TraceShare::Ratio(1.0)));
        check(
            "parentbased_always_off",
            "",
            Some(TraceShare::ParentBased(0.0)),
        );
        check("traceidratio", "0.25", Some(TraceShare::Ratio(0.25)));
        check(
            "parentbased_traceidratio",
            "0.0001",
            Some(TraceShare::ParentBased(0.0001)),
        );
        check("parentbased_traceidratio", "2", None);
        check("jaeger_remote", "", None);
        assert_eq!(sample("0.5"), Err(Some("in percent: `50%`".to_owned())));
        assert_eq!(sample("2%"), Ok(TraceShare::ParentBased(0.02)));
    }
}
