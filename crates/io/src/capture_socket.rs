//! Capture socket on an interface: passively receives the packets of a conversation between this
//! host and remote ends, in both directions, with kernel timestamps.
//!
//! Capture sockets receive copies of the packets that pass the network stack or a queueing packet
//! socket. Packets sent with `PACKET_QDISC_BYPASS`, and those that XDP transmits, redirects or
//! drops, are not captured.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use horolog_sys::socket::DatagramSocket;

use crate::filter::{KEEP_NOTHING, PacketSamplingRule, RemoteEndSelection};
use crate::{
    Batch, BatchDevice, FrameSelection, PacketSocketDevice, PacketSocketError, PacketSocketOptions,
};

/// Frames per system call, and buffer size of each frame in bytes.
const SLOTS: usize = 64;
const FRAME_LEN: usize = 2_048;
/// Requested receive buffer size in bytes, which the kernel doubles (socket(7)). It charges about
/// 800 bytes for each small frame, so the buffer holds some 40,000 of them.
const RECEIVE_BUFFER: usize = 16 << 20;

/// Capture socket, which receives nothing until [`CaptureFilterHandle::set_filter`] sets a filter.
#[derive(Debug)]
pub struct CaptureSocket {
    device: PacketSocketDevice,
    batch: Batch<()>,
}

/// Handle that sets the filter of a capture socket, also while another thread reads the socket.
#[derive(Debug)]
pub struct CaptureFilterHandle {
    socket: DatagramSocket,
    conversation: RemoteEndSelection,
    is_loopback: bool,
}

impl CaptureSocket {
    /// Opens a capture socket for a conversation on `interface`, and returns it with the handle
    /// that sets its filter. With `is_loopback`, each packet is captured once, on ingress.
    ///
    /// # Errors
    ///
    /// See [`PacketSocketError`].
    pub fn open(
        interface: &str,
        is_loopback: bool,
        conversation: RemoteEndSelection,
    ) -> Result<(Self, CaptureFilterHandle), PacketSocketError> {
        let options = PacketSocketOptions {
            slots: SLOTS,
            selection: FrameSelection::Program(vec![KEEP_NOTHING]),
            outgoing: !is_loopback,
            receive_buffer: Some(RECEIVE_BUFFER),
            ..PacketSocketOptions::default()
        };
        let device = PacketSocketDevice::open(interface, &options)?;
        let socket = device
            .try_clone_socket()
            .map_err(|error| PacketSocketError::Other(interface.to_owned(), error))?;
        let batch = Batch::new(SLOTS, FRAME_LEN);
        Ok((Self { device, batch }, CaptureFilterHandle { socket, conversation, is_loopback }))
    }

    /// Waits up to `wait` for packets and returns those that arrived.
    ///
    /// # Errors
    ///
    /// Errors of the interface.
    pub fn receive(&mut self, wait: Duration) -> io::Result<&Batch<()>> {
        self.device.receive(&mut self.batch, wait)?;
        Ok(&self.batch)
    }

    /// Returns the number of packets lost because they were not read in time.
    ///
    /// # Errors
    ///
    /// Errors of the kernel.
    pub fn dropped(&mut self) -> io::Result<u64> {
        self.device.dropped()
    }
}

impl AsFd for CaptureSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

impl CaptureFilterHandle {
    /// Replaces the filter: from now on the socket receives this sample of the conversation.
    ///
    /// # Errors
    ///
    /// Errors of the kernel.
    pub fn set_filter(&self, sample: &PacketSamplingRule) -> io::Result<()> {
        self.socket.attach_filter(&self.conversation.program(sample, !self.is_loopback))
    }
}
