//! Two sockets of one thread, of which one receives the requests longer than a header, which may be
//! authenticated, so that a flood of plain requests neither fills nor delays its queue. The kernel
//! distributes datagrams by length; no packet is inspected here.

use std::io;
use std::time::Duration;

use horolog_io::{Batch, BatchDevice, DatagramEndpoints, UdpDevice};

/// Pair of sockets that share a port, as one device.
#[derive(Debug)]
pub(crate) struct PreferredSocketPair {
    preferred: UdpDevice,
    other: UdpDevice,
    /// True if the last batch came from the preferred socket. The other is then polled first, so
    /// that it does not starve.
    preferred_was_served: bool,
}

impl PreferredSocketPair {
    pub(crate) const fn new(preferred: UdpDevice, other: UdpDevice) -> Self {
        Self { preferred, other, preferred_was_served: false }
    }

    fn receive_now(&mut self, batch: &mut Batch<DatagramEndpoints>) -> io::Result<usize> {
        let first_is_preferred = !self.preferred_was_served;
        for is_preferred in [first_is_preferred, !first_is_preferred] {
            let socket = if is_preferred { &mut self.preferred } else { &mut self.other };
            let count = socket.receive(batch, Duration::ZERO)?;
            if count > 0 {
                self.preferred_was_served = is_preferred;
                return Ok(count);
            }
        }
        Ok(0)
    }
}

impl BatchDevice for PreferredSocketPair {
    type Address = DatagramEndpoints;

    fn receive(
        &mut self,
        batch: &mut Batch<DatagramEndpoints>,
        wait: Duration,
    ) -> io::Result<usize> {
        let count = self.receive_now(batch)?;
        if count == 0 && !wait.is_zero() && self.preferred.wait_either(&self.other, wait)? {
            return self.receive_now(batch);
        }
        Ok(count)
    }

    /// Sends all packets by the preferred socket: transmit timestamps wait in the error queue of
    /// the sending socket, and a flood at the other one would leave no room for them.
    fn send(&mut self, batch: &mut Batch<DatagramEndpoints>) -> io::Result<usize> {
        self.preferred.send(batch)
    }

    fn receive_transmitted(&mut self, batch: &mut Batch<DatagramEndpoints>) -> io::Result<usize> {
        self.preferred.receive_transmitted(batch)
    }
}

#[cfg(test)]
mod tests {
    use horolog_io::UdpDeviceOptions;

    use super::*;

    fn bind() -> UdpDevice {
        UdpDevice::bind("127.0.0.1:0".parse().unwrap(), &UdpDeviceOptions::default()).unwrap()
    }

    #[test]
    fn the_preferred_one_comes_first_and_the_other_is_not_shut_out() {
        let (preferred, other, mut client) = (bind(), bind(), bind());
        let mut batch = Batch::new(1, 16);
        for (socket, text) in
            [(&other, b"o"), (&preferred, b"p"), (&other, b"o"), (&preferred, b"p")]
        {
            batch.clear();
            assert!(batch.push(DatagramEndpoints::to_remote(socket.local_address()), text));
            assert_eq!(client.send(&mut batch).unwrap(), 1);
        }
        let mut pair = PreferredSocketPair::new(preferred, other);
        let mut received = String::new();
        while pair.receive(&mut batch, Duration::from_millis(5)).unwrap() > 0 {
            received.push(char::from(batch.packet(0).bytes[0]));
        }
        assert_eq!(received, "popo");
        // A wait ends with whichever gets something.
        let to = pair.other.local_address();
        batch.clear();
        assert!(batch.push(DatagramEndpoints::to_remote(to), b"late"));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(20));
                client.send(&mut batch).unwrap();
            });
            let mut batch = Batch::new(1, 16);
            assert_eq!(pair.receive(&mut batch, Duration::from_secs(5)).unwrap(), 1);
        });
    }
}
