//! The store that keeps, on disks that forget, fill up, fail and rot.

mod chance;
mod damage;
mod folder;
mod forgetful;
mod full;
mod model;
mod power;
mod reopen;
