//! The real program, from outside: options, signals, and the small clients. One binary, one module
//! an area.

mod broker;
mod certs;
mod clients;
mod doors;
mod folder;
mod limits;
mod mixed;
mod namespaces;
mod options;
mod security;
mod signals;
mod tls;
mod web;
mod wire;
