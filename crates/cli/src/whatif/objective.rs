//! Objectives as texts: `p99 queue < 20ms`.

use whatif::prediction::{Metric, Objective, Times};

use super::flags::span;
use crate::inputs::expect;

/// Understands an objective.
pub(super) fn parse(text: &str) -> Result<Objective, String> {
    let wrong = || {
        format!(
            "expected an objective as 'p99 queue < 20ms', 'p95 total < 1s' or 'refused < 0.1%', found `{text}`"
        )
    };
    let (what, limit) = text.split_once('<').ok_or_else(wrong)?;
    let limit = limit.trim_start_matches('=').trim();
    let words: Vec<&str> = what.split_whitespace().collect();
    let (metric, below) = match words[..] {
        ["refused"] => (Metric::Refused, share(limit)?),
        // What a client sees is the whole time.
        [quantile] => {
            let quantile = quantile_of(quantile).ok_or_else(wrong)?;
            (Metric::Total(quantile), span(limit)?.as_secs_f64() * 1e3)
        }
        [quantile, of] => {
            let quantile = quantile_of(quantile).ok_or_else(wrong)?;
            let metric = match of {
                "queue" => Metric::Queue(quantile),
                "total" => Metric::Total(quantile),
                _ => return Err(wrong()),
            };
            (metric, span(limit)?.as_secs_f64() * 1e3)
        }
        _ => return Err(wrong()),
    };
    Ok(Objective {
        text: text.trim().to_owned(),
        metric,
        below,
    })
}

fn quantile_of(name: &str) -> Option<fn(&Times) -> f64> {
    Some(match name {
        "p50" => |times| times.p50_ms,
        "p90" => |times| times.p90_ms,
        "p95" => |times| times.p95_ms,
        "p99" => |times| times.p99_ms,
        "p99.9" => |times| times.p99_9_ms,
        "p99.99" => |times| times.p99_99_ms,
        "max" => |times| times.max_ms,
        _ => return None,
    })
}

/// `0.1%` or `0.001`.
pub(super) fn share(text: &str) -> Result<f64, String> {
    let share = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().map(|percent| percent / 100.0),
        None => text.parse::<f64>(),
    };
    let share = share.ok().filter(|share| (0.0..=10.0).contains(share));
    expect(share, "a share as 0.1%", text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn understands_times_and_shares() {
        let check = |text: &str, below: f64| {
            let found = parse(text).unwrap();
            assert!(
                (found.below - below).abs() < 1e-9,
                "{text}: {}",
                found.below
            );
        };
        check("p99 queue < 20ms", 20.0);
        check("p99.99 total<1.5s", 1_500.0);
        check(" max queue <= 250us ", 0.25);
        check("refused < 0.1%", 0.001);
        check("refused < 0.05", 0.05);
    }

    #[test]
    fn says_what_it_expects() {
        for text in [
            "",
            "p99",
            "p98 queue < 1s",
            "p99 run < 1s",
            "queue < 1s",
            "p99 queue > 1s",
        ] {
            let cause = parse(text).unwrap_err();
            assert!(
                cause.starts_with("expected an objective"),
                "{text}: {cause}"
            );
        }
        assert!(
            parse("p99 queue < soon")
                .unwrap_err()
                .starts_with("expected a duration")
        );
        assert!(
            parse("refused < many")
                .unwrap_err()
                .starts_with("expected a share")
        );
    }
}
