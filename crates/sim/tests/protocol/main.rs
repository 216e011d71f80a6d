//! The specification, clause by clause, in virtual time: a module a chapter.

use sim::transcripts;

mod c3_01_connect;
