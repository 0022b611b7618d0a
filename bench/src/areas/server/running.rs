//! A running server: how each contender is started, and its processor time and timer.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use super::contender::Name;
use super::inside::Inside;
use super::nginx::{self, Nginx};
use crate::harness::contender::Fit;
use crate::harness::tick::Tick;
use crate::harness::usage::Usage;

/// A running server. Dropping it ends it.
pub enum Server {
    Inside(Inside),
    Nginx(Nginx),
}

/// Returns if a contender can run here.
pub fn fits(name: Name) -> Fit {
    match name {
        Name::Nginx => nginx::fits(),
        _ => Fit::Yes,
    }
}

impl Server {
    /// Starts the server of a contender on the files in `root`.
    pub fn start(name: Name, root: &Path, threads: usize) -> io::Result<Server> {
        match name {
            Name::Nginx => Nginx::start(root, threads).map(Server::Nginx),
            _ => Inside::start(name, root, threads).map(Server::Inside),
        }
    }

    pub fn address(&self) -> SocketAddr {
        match self {
            Server::Inside(inside) => inside.address,
            Server::Nginx(nginx) => nginx.address,
        }
    }

    /// The timer that the server's runtime serves; `None` of another process.
    pub fn tick(&self) -> Option<&Tick> {
        match self {
            Server::Inside(inside) => Some(&inside.tick),
            Server::Nginx(_) => None,
        }
    }

    /// Seconds of processor time of the process or processes with the server.
    pub fn cpu(&self) -> f64 {
        match self {
            Server::Inside(_) => Usage::of_self().cpu(),
            Server::Nginx(nginx) => nginx.cpu(),
        }
    }

    /// The part of a processor time that clients in this process have not used.
    pub fn without_clients(&self, cpu: f64, clients: f64) -> f64 {
        match self {
            Server::Inside(_) => (cpu - clients).max(0.0),
            Server::Nginx(_) => cpu,
        }
    }
}
