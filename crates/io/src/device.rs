//! What every packet device can do.

use std::io;
use std::time::Duration;

use crate::Batch;

/// A device that receives and sends packets in batches, without allocation.
pub trait Device {
    /// What stands beside a packet's bytes: [`crate::Endpoints`] for UDP, `()` for Ethernet frames.
    type Address: Copy + Default;

    /// Waits up to `wait` (zero: does not wait) for at least one packet, puts what has come into
    /// the batch from its start, and returns how many packets that is; the batch's length is the
    /// same number. Zero packets is no error: nothing came in time, or a signal ended the wait.
    ///
    /// # Errors
    ///
    /// What the device itself suffers from, such as an interface that went away. A connected UDP
    /// socket also reports `ConnectionRefused` once when the peer's port turns out to be closed.
    fn receive(&mut self, batch: &mut Batch<Self::Address>, wait: Duration) -> io::Result<usize>;

    /// Sends the packets of the batch in order and returns how many left. The others were refused:
    /// a queue was full, or the network would not have that packet. The batch is left as it is.
    ///
    /// # Errors
    ///
    /// What the device itself suffers from. Packets before the error may have left.
    fn send(&mut self, batch: &mut Batch<Self::Address>) -> io::Result<usize>;

    /// Puts what came back of the packets that were to be timestamped on their way out into the
    /// batch, without waiting, and returns how many those are. Each is the whole packet as it left,
    /// in its frame where the interface has frames, with the time of its transmission in the place
    /// of that of a reception. A packet may come back late or never, and none does from a device
    /// that takes no timestamps.
    ///
    /// # Errors
    ///
    /// As for [`Device::receive`].
    fn sent(&mut self, batch: &mut Batch<Self::Address>) -> io::Result<usize> {
        batch.clear();
        Ok(0)
    }
}
