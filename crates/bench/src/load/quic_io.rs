//! QUIC in a turn of a load thread: input and timers of endpoints, and the orderly close.

use super::client::ClientState;
use super::thread::LoadThread;
use std::io;
use std::time::{Duration, Instant};

impl LoadThread {
    /// Reads an endpoint's datagrams and handles the clients concerned. After `READS_A_TURN_MAX`
    /// reads the endpoint is marked busy and the rest waits for the next turn, so that due messages
    /// are sent in between.
    pub(super) fn poll_endpoint(&mut self, outlet: usize) -> io::Result<()> {
        for _ in 0..READS_A_TURN_MAX {
            let mut woken = std::mem::take(&mut self.woken);
            let more = self.endpoints.poll(outlet, &mut woken)?;
            for at in woken.drain(..) {
                self.on_client_event(at, true, true, false);
            }
            self.woken = woken;
            self.endpoints.send_pending();
            if !more {
                self.endpoints.set_busy(outlet, false);
                return Ok(());
            }
            self.publish_if_due();
        }
        self.endpoints.set_busy(outlet, true);
        Ok(())
    }

    /// Polls every endpoint that has a due timer or more input.
    pub(super) fn fire_endpoint_timers(&mut self) -> io::Result<()> {
        let mut from = 0;
        while self.endpoints.len() > from
            && let Some(due) = self.endpoints.next_due(from, Instant::now())
        {
            self.poll_endpoint(due)?;
            from = due + 1;
        }
        Ok(())
    }

    /// Closes the QUIC connections and waits until the brokers have closed, or for
    /// `CLOSE_WAIT_MAX`: unlike TCP, QUIC has no kernel that delivers the last bytes.
    pub(super) fn close_quic_connections(&mut self) -> io::Result<()> {
        if self.endpoints.len() == 0 {
            return Ok(());
        }
        for client in self.clients.iter_mut().filter(|client| client.state != ClientState::Live) {
            client.close(&mut self.endpoints);
        }
        let until = Instant::now() + CLOSE_WAIT_MAX;
        while self.endpoints.connection_count() > 0 && Instant::now() < until {
            for outlet in 0..self.endpoints.len() {
                let mut woken = Vec::new();
                self.endpoints.poll(outlet, &mut woken)?;
                for at in woken {
                    self.drain_input(at);
                }
            }
            self.endpoints.send_pending();
            std::thread::sleep(CLOSE_POLL_INTERVAL);
        }
        for client in &mut self.clients {
            client.close(&mut self.endpoints);
        }
        self.endpoints.send_pending();
        Ok(())
    }

    fn drain_input(&mut self, at: u32) {
        let client = &mut self.clients[at as usize];
        let Some(wire) = &mut client.transport else { return };
        loop {
            match wire.read(&mut self.buffer, &mut self.endpoints) {
                Ok(Some(1..)) => {}
                Ok(None) => return,
                Ok(Some(0)) | Err(_) => return client.close(&mut self.endpoints),
            }
        }
    }
}

const READS_A_TURN_MAX: usize = 8;
const CLOSE_WAIT_MAX: Duration = Duration::from_millis(500);
const CLOSE_POLL_INTERVAL: Duration = Duration::from_millis(1);
