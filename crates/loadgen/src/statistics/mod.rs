//! Arithmetic on what was measured. Pure: takes numbers, gives numbers and verdicts.
//!
//! ```text
//! outcome ─► metric ─► assertion ─► search        does it hold, and up to which rate
//!                 └──► comparing ─► interval      is the other one better, or is it noise
//! ```

mod moments;

mod assertion;
mod comparing;
mod interval;
mod metric;
mod search;
mod unit;

pub use assertion::{Answer, Assertion, Judged, Verdict};
pub use comparing::{
    Against, Change, Comparison, Estimate, EstimateForm, IntervalMethod, Members, Panel, Row, Set,
    Side, Why, compare,
};
pub use interval::Interval;
pub use metric::{Better, Figure, Metric};
pub use moments::Moments;
pub use search::{Held, Knee, Search, SearchEnd, Try};
pub use unit::Unit;
