//! Shared code of devices on kernel sockets: waiting for packets, sending a batch when the kernel
//! refuses part of it, and counting drops.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use horolog_sys::message::{AncillaryData, MmsghdrTable, is_refusal};
use horolog_sys::socket::DatagramSocket;

use crate::batch::{Batch, PacketMetadata};

/// Receive side of a device on a kernel socket.
pub(crate) trait SocketBatchReceiver<A> {
    /// Returns the socket.
    fn socket(&self) -> &DatagramSocket;

    /// Fills the batch with the available packets and returns their number; fails with `WouldBlock`
    /// if there are none.
    fn try_receive(&mut self, batch: &mut Batch<A>) -> io::Result<usize>;
}

/// Receives the available packets; if there are none, waits up to `wait` for some. Returns their
/// number; 0 on timeout.
pub(crate) fn receive<A: Copy + Default>(
    queue: &mut impl SocketBatchReceiver<A>,
    batch: &mut Batch<A>,
    wait: Duration,
) -> io::Result<usize> {
    let nothing_yet = |result: &io::Result<usize>| {
        result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    };
    batch.clear();
    let mut result = queue.try_receive(batch);
    if nothing_yet(&result) && !wait.is_zero() && queue.socket().wait_readable(wait)? {
        result = queue.try_receive(batch);
    }
    if nothing_yet(&result) { Ok(0) } else { result }
}

/// Receives the packets that were looped back with a transmit timestamp, without waiting, and
/// returns their number. `address` derives the address of each from its ancillary data.
pub(crate) fn receive_transmitted<A: Copy + Default>(
    socket: BorrowedFd<'_>,
    table: &mut MmsghdrTable,
    batch: &mut Batch<A>,
    address: impl Fn(&AncillaryData) -> A,
) -> io::Result<usize> {
    batch.clear();
    let count = match table.receive_errors(socket, batch.buffers_mut()) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
        other => other?,
    };
    batch.fill(count, |slot| {
        let received = table.received(slot);
        PacketMetadata::received(&received, address(&received.control))
    });
    Ok(count)
}

/// Sends `total` packets by calls to `send_from`, which sends from an index on and returns the
/// number sent. If the kernel has no room, waits up to `wait` for each attempt and then drops the
/// rest; a packet that the kernel refuses is skipped. Returns the number sent.
pub(crate) fn send_all(
    socket: &DatagramSocket,
    total: usize,
    wait: Duration,
    mut send_from: impl FnMut(usize) -> io::Result<usize>,
) -> io::Result<usize> {
    let (mut next, mut sent) = (0, 0);
    while next < total {
        match send_from(next) {
            Ok(count) => {
                next += count;
                sent += count;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if wait.is_zero() || !socket.wait_writable(wait)? {
                    break;
                }
            }
            Err(error) if is_refusal(&error) => next += 1,
            Err(error) => return Err(error),
        }
    }
    Ok(sent)
}

/// Counter of drops in 64 bits, from the kernel's 32-bit counter, which wraps around.
#[derive(Default, Debug)]
pub(crate) struct DropCounter {
    last: u32,
    total: u64,
}

impl DropCounter {
    /// Adopts the kernel's present count; returns the number of drops since the kernel's count was
    /// 0, if it wrapped around at most once between two calls.
    pub(crate) fn update(&mut self, count: u32) -> u64 {
        self.total += u64::from(count.wrapping_sub(self.last));
        self.last = count;
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket() -> DatagramSocket {
        DatagramSocket::udp("127.0.0.1:0".parse().unwrap()).unwrap()
    }

    #[test]
    fn a_refused_packet_is_stepped_over() {
        let mut attempts = Vec::new();
        let sent = send_all(&socket(), 5, Duration::ZERO, |from| {
            attempts.push(from);
            if from == 2 { Err(io::ErrorKind::ConnectionRefused.into()) } else { Ok(2) }
        });
        assert_eq!((sent.unwrap(), attempts), (4, vec![0, 2, 3]));
    }

    #[test]
    fn a_full_queue_ends_the_batch() {
        let sent = send_all(&socket(), 5, Duration::ZERO, |from| {
            if from == 0 { Ok(3) } else { Err(io::ErrorKind::WouldBlock.into()) }
        });
        assert_eq!(sent.unwrap(), 3);
    }

    #[test]
    fn an_error_of_the_device_is_reported() {
        let sent =
            send_all(&socket(), 5, Duration::ZERO, |_| Err(io::ErrorKind::NetworkDown.into()));
        assert_eq!(sent.unwrap_err().kind(), io::ErrorKind::NetworkDown);
    }

    #[test]
    fn drops_are_counted_past_the_wrap() {
        let mut counter = DropCounter::default();
        assert_eq!(counter.update(u32::MAX), u64::from(u32::MAX));
        assert_eq!(counter.update(4), u64::from(u32::MAX) + 5);
    }
}
