//! The store on simulated disks that lose data, fill up, fail and have damaged files.

mod chance;
mod damage;
mod folder;
mod forgetful;
mod full;
mod model;
mod power;
mod reopen;
