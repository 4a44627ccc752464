//! Port of the PTP clock: received messages and their processing, the outbox, identity and status.

use horolog_time::{Monotonic, Span, Timestamp};
use horolog_wire::ptp::monitor::{CurrentDataSet, NetSyncMonitorResponse, ParentDataSet};
use horolog_wire::ptp::{Header, Message, MessageType, PortIdentity, PtpMessageBody, PtpTimestamp};

use crate::address::{PtpAddress, PtpDestination};
use crate::clock_state::{PortState, PtpClockProperties};
use crate::compose::{self, ADDRESS_LEN_MAX, check_message, interval_from_log};
use crate::delay::{DelayReqClassification, DelayResponder};
use crate::foreign::{ForeignMasterRecord, ForeignMasters};
use crate::grants::{GrantHolder, Grants};
use crate::refusal::PtpRefusal;
use crate::settings::{ClockSettings, DelayMechanism, PortSettings, PtpPortTransport};
use crate::streams::PtpMessageSchedule;

/// Received PTP message with its context.
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
#[derive(Clone, Copy, Debug)]
pub struct ReceivedPtpMessage<'a> {
    /// Payload of the datagram or frame: the message, with any bytes after it.
    pub bytes: &'a [u8],
    /// Sender address.
    pub from: PtpAddress,
    /// UDP source port; 0 over Ethernet.
    pub from_port: u16,
    /// True if the destination was a multicast group.
    pub group: bool,
    /// True if the message arrived at the event port; over Ethernet, if it is an event message.
    pub event: bool,
    /// Receive time on the served timescale; used for event messages only.
    pub received: PtpTimestamp,
    /// True if the sender is on the same link, and may be sent more bytes than it sent.
    pub on_link: bool,
    /// True if the sender may get grants: it is in a configured prefix or, if there is none, on the
    /// link. Over Ethernet, every sender is on the link.
    pub admitted: bool,
}

/// Recipient of the messages that a port sends.
pub trait Outbox {
    /// Sends a message, by the event port if it is an `event` message. With `needs_timestamp`, the
    /// message is passed to [`ClockPort::process_transmitted`] with its transmit time.
    ///
    /// Over UDP and IPv6 the sender must append two bytes to the message (annex D.5).
    fn send(&mut self, to: PtpDestination, event: bool, needs_timestamp: bool, message: &[u8]);

    /// Returns the approximate transmit time of a message sent now, in the served timescale.
    fn now_ptp(&mut self) -> PtpTimestamp;
}

/// Port of a PTP clock, as a state machine.
#[derive(Clone, Debug)]
pub struct ClockPort {
    pub(crate) clock: ClockSettings,
    pub(crate) settings: PortSettings,
    pub(crate) identity: PortIdentity,
    pub(crate) state: PortState,
    /// End of the listening period, if the port is in it.
    pub(crate) listening_until: Option<Timestamp<Monotonic>>,
    /// Length of the listening period.
    pub(crate) listening_period: Span,
    /// PTP data of the clock when it was last usable.
    pub(crate) last_usable_state: Option<PtpClockProperties>,
    pub(crate) foreign: ForeignMasters,
    pub(crate) grants: Grants,
    pub(crate) announce: PtpMessageSchedule,
    pub(crate) sync: PtpMessageSchedule,
    pub(crate) signaling_id: u16,
    pub(crate) counts: PtpPortCounts,
}

/// State of a port at an instant, for the status.
#[derive(Clone, PartialEq, Debug)]
pub struct ClockPortStatus {
    /// Identity of the port.
    pub identity: PortIdentity,
    /// State of the port.
    pub state: PortState,
    /// Better master, because of which the port does not send; `None` if there is none.
    pub better_master: Option<ForeignMasterRecord>,
    /// All stored foreign masters, including the better one.
    pub foreign_masters: Vec<ForeignMasterRecord>,
    /// Number of unicast grants held by clients.
    pub grants: usize,
    /// Total rate of the grants, in messages per second; a Sync counts twice because of its
    /// `Follow_Up`.
    pub granted_rate: f64,
    /// Message counts.
    pub counts: PtpPortCounts,
}

impl ClockPort {
    /// Creates a port that starts at `now` by listening. A port without multicast receives no
    /// Announce messages of other masters, and so does not listen.
    #[must_use]
    pub fn new(
        clock: ClockSettings,
        mut settings: PortSettings,
        now: Timestamp<Monotonic>,
    ) -> Self {
        settings.address.truncate(ADDRESS_LEN_MAX);
        let timeout = i64::from(settings.announce_receipt_timeout);
        let listening = interval_from_log(settings.log_announce).as_ns().saturating_mul(timeout);
        let listening = if settings.multicast { Span::from_ns(listening) } else { Span::ZERO };
        let foreign = ForeignMasters::new(
            clock.identity,
            settings.log_announce,
            settings.announce_receipt_timeout,
        );
        Self {
            identity: settings.identity(&clock),
            state: PortState::Listening,
            listening_until: Some(now + listening),
            listening_period: listening,
            last_usable_state: None,
            foreign,
            grants: Grants::new(settings.unicast),
            announce: PtpMessageSchedule::new(settings.log_announce, now),
            sync: PtpMessageSchedule::new(settings.log_sync, now),
            signaling_id: 0,
            counts: PtpPortCounts::default(),
            clock,
            settings,
        }
    }

    /// Returns the state of the port.
    #[must_use]
    pub const fn state(&self) -> PortState {
        self.state
    }

    /// Returns the status of the port, given the present state of its clock.
    #[must_use]
    pub fn view(&self, clock: &PtpClockProperties) -> ClockPortStatus {
        ClockPortStatus {
            identity: self.identity,
            state: self.state,
            better_master: self.better_master(clock).copied(),
            foreign_masters: self.foreign.records().to_vec(),
            grants: self.grants.len(),
            granted_rate: self.grants.rate(),
            counts: self.counts.clone(),
        }
    }

    /// Returns the data with which a `Delay_Req` is answered; `None` while the port does not answer
    /// them.
    #[must_use]
    pub fn delay_responder(&self, clock: &PtpClockProperties) -> Option<DelayResponder<'_>> {
        let answers = clock.usable
            && self.state == PortState::Master
            && self.settings.delay == DelayMechanism::EndToEnd;
        answers.then(|| DelayResponder {
            identity: self.identity,
            domain: self.clock.domain,
            sdo_id: self.clock.sdo_id,
            log_min_delay_req: self.settings.log_min_delay_req,
            multicast: self.settings.multicast,
            hybrid: self.settings.hybrid,
            monitor: self.settings.monitor.then(|| self.monitor_response(clock)),
        })
    }

    /// Returns the NetSync Monitor data. A grandmaster is its own parent (clause 8.2.3).
    fn monitor_response(&self, clock: &PtpClockProperties) -> NetSyncMonitorResponse<'_> {
        NetSyncMonitorResponse {
            port_state: self.state as u8,
            protocol: self.settings.transport.protocol(),
            address: &self.settings.address,
            parent: self.parent_data_set(clock),
            current: CurrentDataSet::default(),
            utc_offset: clock.utc_offset,
            time_flags: clock.time_flags(),
            time_source: clock.time_source,
            last_sync: PtpTimestamp::ZERO,
        }
    }

    /// Returns the parent data set of a grandmaster (clauses 8.2.3 and 9.3.5, table 30).
    pub(crate) const fn parent_data_set(&self, clock: &PtpClockProperties) -> ParentDataSet {
        ParentDataSet {
            port: PortIdentity { clock: self.clock.identity, port: 0 },
            has_statistics: false,
            variance: UNKNOWN_VARIANCE,
            phase_change_rate: UNKNOWN_PHASE_CHANGE_RATE,
            grandmaster: clock.grandmaster(&self.clock),
        }
    }

    /// Processes a received message; a refusal is counted.
    pub fn receive(
        &mut self,
        arrival: &ReceivedPtpMessage<'_>,
        clock: &PtpClockProperties,
        now: Timestamp<Monotonic>,
        out: &mut impl Outbox,
    ) {
        if let Err(reason) = self.process(arrival, clock, now, out) {
            self.counts.count_refused(reason);
        }
    }

    /// Counts the refusal of a message that was not parsed.
    pub(crate) fn refuse(&mut self, reason: PtpRefusal) {
        self.counts.count_refused(reason);
    }

    fn process(
        &mut self,
        arrival: &ReceivedPtpMessage<'_>,
        clock: &PtpClockProperties,
        now: Timestamp<Monotonic>,
        out: &mut impl Outbox,
    ) -> Result<(), PtpRefusal> {
        let (message, _) = Message::parse(arrival.bytes)?;
        self.counts.count_received(message.body.type_bits());
        let kind = message.kind().ok_or(PtpRefusal::Type)?;
        if self.settings.transport != PtpPortTransport::Ethernet && arrival.event != kind.is_event()
        {
            return Err(PtpRefusal::Channel);
        }
        check_message(&message, (self.clock.domain, self.clock.sdo_id), self.identity)?;
        match message.body {
            PtpMessageBody::Announce(_) => {
                self.process_announce(&message, arrival.group, clock, now, out)
            }
            PtpMessageBody::DelayReq(_) => self.delay_request(&message, arrival, clock, now, out),
            PtpMessageBody::PdelayReq(_) => self.peer_delay_request(&message, arrival, clock, out),
            PtpMessageBody::Signaling(target) => {
                self.signaling(&message, target, arrival, clock, now, out)
            }
            PtpMessageBody::Management(addressee) => {
                self.management(&message, &addressee, arrival, clock, out)
            }
            _ => Err(PtpRefusal::Unwanted),
        }
    }

    fn delay_request(
        &mut self,
        request: &Message<'_>,
        arrival: &ReceivedPtpMessage<'_>,
        clock: &PtpClockProperties,
        now: Timestamp<Monotonic>,
        out: &mut impl Outbox,
    ) -> Result<(), PtpRefusal> {
        if self.settings.delay != DelayMechanism::EndToEnd {
            return Err(PtpRefusal::Mechanism);
        }
        let client = GrantHolder::new(arrival.from, request.header.source);
        let context = DelayReqClassification {
            group: arrival.group,
            granted: self.grants.has_grant(client, MessageType::DelayResp, now),
            admitted: arrival.admitted,
        };
        let responder = self.delay_responder(clock).ok_or(PtpRefusal::State)?;
        let answer = responder.respond(request, context, arrival.received)?;
        let to =
            if arrival.group { PtpDestination::Group } else { PtpDestination::To(arrival.from) };
        self.counts.count_sent(MessageType::DelayResp as u8);
        out.send(to, false, false, answer.bytes());
        if answer.needs_sync {
            self.send_sync(to, request.header.sequence_id, out);
        }
        Ok(())
    }

    /// Returns the time of the next action that depends on time alone. [`ClockPort::process_due`]
    /// must also be called when the state of the clock changes.
    #[must_use]
    pub fn next_due(&self) -> Timestamp<Monotonic> {
        let forever = Timestamp::from_ns(i64::MAX);
        let streams = match self.state {
            PortState::Master if self.settings.multicast => {
                self.announce.next_due.min(self.sync.next_due)
            }
            PortState::Listening => self.listening_until.unwrap_or(forever),
            PortState::Master | PortState::Passive | PortState::Faulty => forever,
        };
        let others = [self.foreign.next_expiry(), self.grants.next_due()];
        others.into_iter().flatten().fold(streams, Timestamp::min)
    }

    /// Returns the header of a message from this port.
    pub(crate) fn header(&self, to: PtpDestination, sequence_id: u16) -> Header {
        compose::header(&self.clock, self.identity, compose::unicast_flag(to), sequence_id)
    }
}

/// Values of the parent data set while nothing is measured (clauses 8.2.3.4 and 8.2.3.5), here and
/// below.
const UNKNOWN_VARIANCE: u16 = 0xffff;
const UNKNOWN_PHASE_CHANGE_RATE: u32 = 0x7fff_ffff;

/// Messages received and sent, by type, and refusals by reason.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct PtpPortCounts {
    received: [u64; 16],
    sent: [u64; 16],
    refused: [u64; PtpRefusal::COUNT],
}

impl PtpPortCounts {
    /// Returns the number of received messages of this type, whether accepted or not.
    #[must_use]
    pub const fn received(&self, kind: MessageType) -> u64 {
        self.received[kind as usize]
    }

    /// Returns the number of sent messages of this type.
    #[must_use]
    pub const fn sent(&self, kind: MessageType) -> u64 {
        self.sent[kind as usize]
    }

    /// Returns the number of messages, and of single requests in messages, refused for this reason.
    #[must_use]
    pub const fn refused(&self, reason: PtpRefusal) -> u64 {
        self.refused[reason as usize]
    }

    /// Counts a received message; the low four bits of `bits` are its type.
    pub(crate) const fn count_received(&mut self, bits: u8) {
        self.received[(bits & 0xf) as usize] += 1;
    }

    /// Counts a sent message; the low four bits of `bits` are its type.
    pub(crate) const fn count_sent(&mut self, bits: u8) {
        self.sent[(bits & 0xf) as usize] += 1;
    }

    /// Counts a refusal of a message, or of a single request in one.
    pub(crate) const fn count_refused(&mut self, reason: PtpRefusal) {
        self.refused[reason as usize] += 1;
    }
}
