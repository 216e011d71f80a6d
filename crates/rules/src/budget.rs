//! Bounds on the cost of a run, and the errors of a run.

use std::fmt;

/// Remaining resources of a run of a [`crate::RulePlan`]. A caller may share one budget among all
/// rules for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Units of about ten nanoseconds: an operation, an element iterated, compared or hashed, or 16
    /// bytes scanned.
    pub steps: u64,
    /// Memory in bytes allocated by the run, rows included. Freed memory is not given back.
    pub bytes: u64,
    /// Number of rows which the run may still append.
    pub rows: u32,
}

/// Enough for any rule on a message of up to some hundred kilobytes; bounds a run to a few
/// milliseconds.
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

    /// Charges `steps` for scanning so many bytes.
    pub(crate) fn scan(&mut self, bytes: usize) -> Result<(), RunError> {
        self.step(1 + bytes as u64 / 16)
    }

    /// Charges memory, and the steps to fill the memory. Must be called before the allocation.
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

/// Why a run gave up. The caller has to drop rows appended before the error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunError {
    /// An argument of a wrong kind; `at` counts from 1.
    Argument {
        function: &'static str,
        at: usize,
        wants: &'static str,
        got: &'static str,
    },
    /// Arithmetic without a result, such as an overflow, with the operator and the reason.
    Arithmetic {
        operator: &'static str,
        why: &'static str,
    },
    Bytes,
    /// A function without a result for arguments of the right kinds.
    Function {
        function: &'static str,
        why: &'static str,
    },
    Operands {
        operator: &'static str,
        left: &'static str,
        right: &'static str,
    },
    /// A column has an alias below `payload`, and the payload is not JSON with fields.
    PayloadNotJson,
    Rows,
    Steps,
    /// A window keeps as many values for this key as `VALUES_MAX` allows.
    Values,
}

impl RunError {
    /// Returns the kind of error in one word, as a label for counters.
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
