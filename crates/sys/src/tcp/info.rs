//! `TCP_INFO` in the kernel's layout (`struct tcp_info` in linux/tcp.h), read byte by byte. An
//! older kernel returns fewer bytes; missing fields are 0. The same bytes come by `sock_diag`(7).

use std::time::Duration;

/// State of a connection, with the names of RFC 9293.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TcpState {
    /// Data can flow in both directions.
    Established,
    /// Any other one, by the kernel's number.
    Other(u8),
}

/// State of a connection in the kernel: the fields that explain why data does not leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TcpInfo {
    /// Kernel's number of its state.
    pub state_number: u8,
    /// Retransmission timeout: the time without an acknowledgement after which a segment is sent
    /// again.
    pub rto: Duration,
    /// Acknowledgement timeout: the time after which an acknowledgement without data is sent.
    pub ato: Duration,
    /// Largest payload of a sent segment, in bytes.
    pub mss: u32,
    /// Kernel's estimate of the remote end's segments, in bytes.
    pub receive_mss: u32,
    /// Segments that are sent and not acknowledged.
    pub unacknowledged: u32,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Variation of the round-trip time.
    pub rtt_variance: Duration,
    /// Shortest recent round-trip time.
    pub rtt_min: Duration,
    /// Segments from which on the window grows slowly.
    pub slow_start_threshold: u32,
    /// Congestion window, in segments.
    pub cwnd: u32,
    /// Segments sent again in the connection's life.
    pub retransmitted: u32,
    /// Bytes written and not sent yet.
    pub not_sent: u32,
    /// Segments that were sent with data.
    pub data_segments_sent: u32,
    /// Received segments with data.
    pub data_segments_received: u32,
    /// Sent segments.
    pub segments_sent: u32,
    /// Received segments.
    pub segments_received: u32,
    /// Received bytes.
    pub bytes_received: u64,
    /// Bytes that the other end has acknowledged.
    pub bytes_acknowledged: u64,
    /// Time limited by the other end's window.
    pub receive_window_limited: Duration,
}

/// Offsets of the fields.
mod at {
    pub(super) const STATE: usize = 0;
    pub(super) const RTO: usize = 8;
    pub(super) const ATO: usize = 12;
    pub(super) const SND_MSS: usize = 16;
    pub(super) const RCV_MSS: usize = 20;
    pub(super) const UNACKED: usize = 24;
    pub(super) const RTT: usize = 68;
    pub(super) const RTTVAR: usize = 72;
    pub(super) const SND_SSTHRESH: usize = 76;
    pub(super) const SND_CWND: usize = 80;
    pub(super) const TOTAL_RETRANS: usize = 100;
    pub(super) const BYTES_ACKED: usize = 120;
    pub(super) const BYTES_RECEIVED: usize = 128;
    pub(super) const SEGS_OUT: usize = 136;
    pub(super) const SEGS_IN: usize = 140;
    pub(super) const NOTSENT_BYTES: usize = 144;
    pub(super) const MIN_RTT: usize = 148;
    pub(super) const DATA_SEGS_IN: usize = 152;
    pub(super) const DATA_SEGS_OUT: usize = 156;
    pub(super) const RWND_LIMITED: usize = 176;
}

/// The number of an established connection (`TCP_ESTABLISHED` in `linux/tcp_states.h`).
const ESTABLISHED: u8 = 1;

impl TcpInfo {
    /// Bytes up to the last field that is read here.
    pub(crate) const BYTES: usize = 192;

    /// Parses the kernel's bytes; fields past their end are 0.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Self {
        let word = |at: usize| {
            let field = bytes.get(at..).and_then(|rest| rest.first_chunk());
            field.copied().map_or(0, u32::from_ne_bytes)
        };
        let long = |at: usize| {
            let field = bytes.get(at..).and_then(|rest| rest.first_chunk());
            field.copied().map_or(0, u64::from_ne_bytes)
        };
        let us = |at| Duration::from_micros(word(at).into());
        Self {
            state_number: bytes.get(at::STATE).copied().unwrap_or(0),
            rto: us(at::RTO),
            ato: us(at::ATO),
            mss: word(at::SND_MSS),
            receive_mss: word(at::RCV_MSS),
            unacknowledged: word(at::UNACKED),
            rtt: us(at::RTT),
            rtt_variance: us(at::RTTVAR),
            rtt_min: us(at::MIN_RTT),
            slow_start_threshold: word(at::SND_SSTHRESH),
            cwnd: word(at::SND_CWND),
            retransmitted: word(at::TOTAL_RETRANS),
            not_sent: word(at::NOTSENT_BYTES),
            data_segments_sent: word(at::DATA_SEGS_OUT),
            data_segments_received: word(at::DATA_SEGS_IN),
            segments_sent: word(at::SEGS_OUT),
            segments_received: word(at::SEGS_IN),
            bytes_received: long(at::BYTES_RECEIVED),
            bytes_acknowledged: long(at::BYTES_ACKED),
            receive_window_limited: Duration::from_micros(long(at::RWND_LIMITED)),
        }
    }

    /// Returns the connection's state.
    #[must_use]
    pub const fn state(&self) -> TcpState {
        match self.state_number {
            ESTABLISHED => TcpState::Established,
            other => TcpState::Other(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_stand_where_the_kernel_puts_them() {
        use std::mem::offset_of;
        assert_eq!(at::RTO, offset_of!(libc::tcp_info, tcpi_rto));
        assert_eq!(at::ATO, offset_of!(libc::tcp_info, tcpi_ato));
        assert_eq!(at::UNACKED, offset_of!(libc::tcp_info, tcpi_unacked));
        assert_eq!(at::RTT, offset_of!(libc::tcp_info, tcpi_rtt));
        assert_eq!(at::SND_CWND, offset_of!(libc::tcp_info, tcpi_snd_cwnd));
        assert_eq!(at::TOTAL_RETRANS, offset_of!(libc::tcp_info, tcpi_total_retrans));
    }

    #[test]
    fn what_is_cut_off_is_zero() {
        let mut bytes = [0; TcpInfo::BYTES];
        bytes[at::STATE] = ESTABLISHED;
        bytes[at::SND_CWND..][..4].copy_from_slice(&10_u32.to_ne_bytes());
        bytes[at::NOTSENT_BYTES..][..4].copy_from_slice(&7_u32.to_ne_bytes());
        let whole = TcpInfo::parse(&bytes);
        assert_eq!((whole.cwnd, whole.not_sent), (10, 7));
        let short = TcpInfo::parse(&bytes[..104]);
        assert_eq!((short.cwnd, short.not_sent), (10, 0));
        assert_eq!(TcpInfo::parse(&[]).state(), TcpState::Other(0));
    }
}
