//! The real program, from outside: options, signals, and the small clients. One binary, one module
//! an area.

mod broker;
mod clients;
mod folder;
mod options;
mod signals;
mod wire;
