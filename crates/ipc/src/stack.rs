//! What a process says of the place where one of its requests is, to be shown to people.

use serde::{Deserialize, Serialize};

/// The answer to [`crate::SupervisorCommand::Stack`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StackReport {
    /// Where it is.
    Stack {
        /// What the frames are: "Stack (most recent call last)".
        title: String,
        /// As Python prints them, the outermost first.
        frames: String,
    },
    /// There is no stack, for this reason.
    Missing(String),
}
