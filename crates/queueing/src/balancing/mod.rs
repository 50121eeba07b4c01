//! Which server of a group gets a request: an upstream group is a pool whose threads are elsewhere.

mod retry;

pub use retry::{NoRetry, Progress, RetryBudget, RetryCase, may_retry};
