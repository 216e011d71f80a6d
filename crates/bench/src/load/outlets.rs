//! The turn's part of QUIC: what an outlet has brought, its timers, and the farewell.

use super::client::State;
use super::thread::Load;
use std::io;
use std::time::{Duration, Instant};

impl Load {
    /// Reads what has come by an outlet; those whom it is for act on it. Of more than a turn may
    /// read the rest is read in the next, so that what is to be sent is sent in between.
    pub(super) fn turn_outlet(&mut self, outlet: usize) -> io::Result<()> {
        for _ in 0..READS_A_TURN_MAX {
            let mut woken = std::mem::take(&mut self.woken);
            let more = self.outlets.turn(outlet, &mut woken)?;
            for at in woken.drain(..) {
                self.look(at, true, true, false);
            }
            self.woken = woken;
            self.outlets.send();
            if !more {
                self.outlets.set_busy(outlet, false);
                return Ok(());
            }
            self.keep_time();
        }
        self.outlets.set_busy(outlet, true);
        Ok(())
    }

    /// Fires what is due.
    pub(super) fn wind_outlets(&mut self) -> io::Result<()> {
        let mut from = 0;
        while self.outlets.len() > from
            && let Some(due) = self.outlets.due(from, Instant::now())
        {
            self.turn_outlet(due)?;
            from = due + 1;
        }
        Ok(())
    }

    /// Whoever ends by a socket of its own has the kernel bring its last words. Here they are
    /// brought by us: until brokers have closed, or for a moment.
    pub(super) fn part(&mut self) -> io::Result<()> {
        if self.outlets.len() == 0 {
            return Ok(());
        }
        for client in self.clients.iter_mut().filter(|client| client.state != State::Live) {
            client.close(&mut self.outlets);
        }
        let until = Instant::now() + PARTING_MAX;
        while self.outlets.trunks() > 0 && Instant::now() < until {
            for outlet in 0..self.outlets.len() {
                let mut woken = Vec::new();
                self.outlets.turn(outlet, &mut woken)?;
                for at in woken {
                    self.hear_out(at);
                }
            }
            self.outlets.send();
            std::thread::sleep(BLINK);
        }
        for client in &mut self.clients {
            client.close(&mut self.outlets);
        }
        self.outlets.send();
        Ok(())
    }

    fn hear_out(&mut self, at: u32) {
        let client = &mut self.clients[at as usize];
        let Some(wire) = &mut client.wire else { return };
        loop {
            match wire.read(&mut self.buffer, &mut self.outlets) {
                Ok(Some(1..)) => {}
                Ok(None) => return,
                Ok(Some(0)) | Err(_) => return client.close(&mut self.outlets),
            }
        }
    }
}

const READS_A_TURN_MAX: usize = 8;
const PARTING_MAX: Duration = Duration::from_millis(500);
const BLINK: Duration = Duration::from_millis(1);
