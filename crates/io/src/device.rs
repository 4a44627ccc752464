//! Common trait of all packet devices.

use std::io;
use std::time::Duration;

use crate::Batch;

/// Device that receives and sends packets in batches; real devices allocate no memory for them.
pub trait BatchDevice {
    /// Address of a packet: [`crate::DatagramEndpoints`] for UDP, `()` for Ethernet frames.
    type Address: Copy + Default;

    /// Waits up to `wait` (zero: does not wait) for at least one packet, puts those that have
    /// arrived into the batch from its start, as far as it has room, and returns their number,
    /// which is also the batch's length. Zero packets is no error: none arrived in time, or a
    /// signal ended the wait.
    ///
    /// # Errors
    ///
    /// Errors of the device itself, such as a removed interface. A connected UDP socket also
    /// reports `ConnectionRefused` once if the peer's port is closed.
    fn receive(&mut self, batch: &mut Batch<Self::Address>, wait: Duration) -> io::Result<usize>;

    /// Sends the packets of the batch in order and returns the number sent. The others were
    /// refused: a queue was full, or the network rejected that packet. The batch is left as it is.
    ///
    /// # Errors
    ///
    /// Errors of the device itself. Packets before the error may have been sent.
    fn send(&mut self, batch: &mut Batch<Self::Address>) -> io::Result<usize>;

    /// Receives, without waiting, the packets that the kernel looped back with a transmit timestamp
    /// (the socket's error queue), and returns their number. Each is the whole packet as
    /// transmitted, including its link header if the interface has one, with the transmit timestamp
    /// in place of a receive timestamp. A packet may be looped back late or never; a device without
    /// transmit timestamps returns 0.
    ///
    /// # Errors
    ///
    /// As for [`BatchDevice::receive`].
    fn receive_transmitted(&mut self, batch: &mut Batch<Self::Address>) -> io::Result<usize> {
        batch.clear();
        Ok(0)
    }
}
