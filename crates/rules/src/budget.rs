//! What a run may cost, and why it may fail.

use std::fmt;

/// Remaining resources of a run. A caller may share one budget among all rules that see a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Some ten nanoseconds each: an operation, an element of a loop or of what is compared or
    /// hashed, 16 bytes looked at.
    pub steps: u64,
    /// Memory that the run allocates, including its rows, in bytes. Freed memory is not given back.
    pub bytes: u64,
    /// Rows that come out.
    pub rows: u32,
}

/// For any rule on a message of up to some hundred kilobytes; at most a few milliseconds.
impl Default for Budget {
    fn default() -> Budget {
        Budget { steps: 200_000, bytes: 4 << 20, rows: 1000 }
    }
}

impl Budget {
    pub(crate) fn step(&mut self, steps: u64) -> Result<(), RunError> {
        match self.steps.checked_sub(steps) {
            Some(left) => {
                self.steps = left;
                Ok(())
            }
            None => Err(RunError::Steps),
        }
    }

    /// Looking through so many bytes.
    pub(crate) fn scan(&mut self, bytes: usize) -> Result<(), RunError> {
        self.step(1 + bytes as u64 / 16)
    }

    /// Memory, and the time to fill it. Asked for before it is taken.
    pub fn take(&mut self, bytes: usize) -> Result<(), RunError> {
        self.step(bytes as u64 / 64)?;
        match self.bytes.checked_sub(bytes as u64) {
            Some(left) => {
                self.bytes = left;
                Ok(())
            }
            None => Err(RunError::Bytes),
        }
    }

    pub(crate) fn row(&mut self) -> Result<(), RunError> {
        match self.rows.checked_sub(1) {
            Some(left) => {
                self.rows = left;
                Ok(())
            }
            None => Err(RunError::Rows),
        }
    }
}

/// Why a run gave up. Rows that were out before it did are the caller's to drop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunError {
    /// An argument that a function cannot work with; they count from 1.
    Argument {
        function: &'static str,
        at: usize,
        wants: &'static str,
        got: &'static str,
    },
    /// Arithmetic without a result: by what, and why.
    Arithmetic {
        operator: &'static str,
        why: &'static str,
    },
    Bytes,
    /// A function with good arguments and no result.
    Function {
        function: &'static str,
        why: &'static str,
    },
    Operands {
        operator: &'static str,
        left: &'static str,
        right: &'static str,
    },
    /// A column goes below `payload`, and that is no JSON.
    PayloadNotJson,
    Rows,
    Steps,
    /// A window has as many values of one key as it may keep.
    Values,
}

impl RunError {
    /// Returns the reason in one word, for counters.
    pub fn reason(&self) -> &'static str {
        match self {
            RunError::Argument { .. } | RunError::Operands { .. } | RunError::PayloadNotJson => {
                "type"
            }
            RunError::Arithmetic { .. } => "arithmetic",
            RunError::Bytes => "bytes",
            RunError::Function { .. } => "function",
            RunError::Rows => "rows",
            RunError::Steps => "steps",
            RunError::Values => "values",
        }
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Argument { function, at, wants, got } => {
                write!(f, "{function}: argument {at} is {got}, but it has to be {wants}")
            }
            RunError::Arithmetic { operator, why } => write!(f, "{operator}: {why}"),
            RunError::Bytes => f.write_str("the rule needs more memory than a run may take"),
            RunError::Function { function, why } => write!(f, "{function}: {why}"),
            RunError::Operands { operator, left, right } => {
                write!(f, "{operator}: {left} and {right} do not go together")
            }
            RunError::PayloadNotJson => f.write_str(
                "AS payload....: the payload is not JSON with fields, so there is nothing to put \
                 the column into",
            ),
            RunError::Rows => f.write_str("the rule makes more rows than a run may"),
            RunError::Steps => f.write_str("the rule needs more steps than a run may take"),
            RunError::Values => f.write_str("the window has as many values of this key as it may"),
        }
    }
}
