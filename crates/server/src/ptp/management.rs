//! Responses of a port to management: it reads, and changes nothing (IEEE 1588-2019, clause 15).

use horolog_wire::ptp::management::data::{
    ClockDescription, Current, Data, DefaultDataSet, PortDataSet, TimeProperties, emit_text, id,
};
use horolog_wire::ptp::management::{
    Addressee, Managed, ManagementAction, REFUSAL_TLV_LEN, RefusalCode, Refused,
};
use horolog_wire::ptp::message::MANAGEMENT_LEN;
use horolog_wire::ptp::{
    Message, MessageType, PtpFlags, PtpMessageBody, PtpTimestamp, TimeInterval, VERSION,
};

use super::{ClockPort, Outbox, PtpArrival, PtpClockState, PtpDestination, PtpRefusal};

/// Upper limit of the data length: a description whose only configured text has 256 bytes.
const DATA_LEN_MAX: usize = 512;
const SUFFIX_LEN_MAX: usize = DATA_LEN_MAX + 8;

/// Name of the port's physical layer (clause 15.5.3.1.2.3).
const PHYSICAL_LAYER: &str = "IEEE 802.3";
/// Manufacturer; model; instance.
const PRODUCT: &str = "Horolog;horolog;";
/// Hardware; firmware; software.
const REVISION: &str = concat!(";;", env!("CARGO_PKG_VERSION"));

/// Data of a response: the first bytes of an array, and their number.
struct ManagementReply {
    bytes: [u8; DATA_LEN_MAX],
    length: usize,
}

impl ManagementReply {
    /// Creates the reply from the bytes that `emit` writes and whose length it returns.
    fn by(emit: impl FnOnce(&mut [u8]) -> usize) -> Self {
        let mut bytes = [0; DATA_LEN_MAX];
        let length = emit(&mut bytes);
        Self { bytes, length }
    }

    fn data(data: &impl Data) -> Self {
        Self::by(|buffer| data.emit(buffer))
    }

    /// Creates a reply of one byte, padded to an even length.
    fn byte(value: u8) -> Self {
        Self::pair(value, 0)
    }

    fn pair(first: u8, second: u8) -> Self {
        Self::by(|buffer| {
            buffer[..2].copy_from_slice(&[first, second]);
            2
        })
    }
}

impl ClockPort {
    /// Responds to a GET, and refuses requests that would change anything. The response goes to the
    /// destination of the request: to the group, or to the requester at its source port.
    pub(super) fn management(
        &mut self,
        message: &Message<'_>,
        addressee: &Addressee,
        arrival: &PtpArrival<'_>,
        clock: &PtpClockState,
        out: &mut impl Outbox,
    ) -> Result<(), PtpRefusal> {
        if !addressee.target.targets(self.identity) {
            return Err(PtpRefusal::Target);
        }
        if arrival.group && !self.settings.multicast {
            return Err(PtpRefusal::Group);
        }
        let tlv = message.tlvs().flatten().next().ok_or(PtpRefusal::Length)?;
        let managed = Managed::from_tlv(&tlv).ok_or(PtpRefusal::Unwanted)??;
        let action = match addressee.action {
            ManagementAction::Get | ManagementAction::Set => ManagementAction::Response,
            ManagementAction::Command => ManagementAction::Acknowledge,
            ManagementAction::Response
            | ManagementAction::Acknowledge
            | ManagementAction::Reserved(_) => {
                return Err(PtpRefusal::Unwanted);
            }
        };
        let mut suffix = [0; SUFFIX_LEN_MAX];
        let length = match self.answer(addressee.action, managed.id, clock, out.now_ptp()) {
            Ok(reply) => {
                Managed { id: managed.id, data: &reply.bytes[..reply.length] }.emit(&mut suffix)
            }
            Err(code) => Refused { code, id: managed.id }.emit(&mut suffix),
        };
        let to = if arrival.group {
            PtpDestination::Group
        } else {
            PtpDestination::Manager(arrival.from, arrival.from_port)
        };
        let answer = Message {
            header: self.header(to, message.header.sequence_id),
            body: PtpMessageBody::Management(Addressee {
                target: message.header.source,
                // As far as the request travelled (clause 15.3.3).
                starting_hops: addressee.starting_hops.saturating_sub(addressee.hops),
                hops: addressee.starting_hops.saturating_sub(addressee.hops),
                action,
            }),
            suffix: &suffix[..length],
        };
        if answer.len() > message.len() && !arrival.on_link {
            return Err(PtpRefusal::Amplifying);
        }
        let mut buffer = [0; MANAGEMENT_LEN + SUFFIX_LEN_MAX];
        let length = answer.emit(&mut buffer);
        self.counts.count_sent(MessageType::Management as u8);
        out.send(to, false, false, &buffer[..length]);
        Ok(())
    }

    fn answer(
        &self,
        action: ManagementAction,
        requested_id: u16,
        clock: &PtpClockState,
        now: PtpTimestamp,
    ) -> Result<ManagementReply, RefusalCode> {
        match (action, self.requested_data(requested_id, clock, now)) {
            _ if requested_id == id::NULL_MANAGEMENT => Ok(ManagementReply::by(|_| 0)),
            _ if !id::is_known(requested_id) => Err(RefusalCode::NoSuchId),
            (ManagementAction::Set, _) => Err(RefusalCode::NotSetable),
            (ManagementAction::Get, Some(reply)) => Ok(reply),
            _ => Err(RefusalCode::NotSupported),
        }
    }

    /// Returns the requested data of the clock and of this port (table 59); `None` if there is
    /// none.
    fn requested_data(
        &self,
        requested_id: u16,
        clock: &PtpClockState,
        now: PtpTimestamp,
    ) -> Option<ManagementReply> {
        let (own, settings) = (&self.clock, &self.settings);
        let flags = |mask: PtpFlags| clock.time_flags() & mask.0 as u8;
        let traceable = PtpFlags::TIME_TRACEABLE.with(PtpFlags::FREQUENCY_TRACEABLE);
        Some(match requested_id {
            id::CLOCK_DESCRIPTION => self.describe(),
            id::USER_DESCRIPTION => ManagementReply::by(|buffer| emit_text(&own.user, buffer)),
            id::DEFAULT_DATA_SET => ManagementReply::data(&self.default_data_set(clock)),
            // A grandmaster is zero steps from itself.
            id::CURRENT_DATA_SET => ManagementReply::data(&Current::default()),
            id::PARENT_DATA_SET => ManagementReply::data(&self.parent(clock)),
            id::TIME_PROPERTIES_DATA_SET => ManagementReply::data(&TimeProperties {
                utc_offset: clock.utc_offset,
                flags: clock.time_flags(),
                time_source: clock.time_source,
            }),
            id::PORT_DATA_SET => ManagementReply::data(&self.port_data_set()),
            id::PRIORITY1 => ManagementReply::byte(own.priority1),
            id::PRIORITY2 => ManagementReply::byte(own.priority2),
            id::DOMAIN => ManagementReply::byte(own.domain),
            id::SLAVE_ONLY => ManagementReply::byte(0),
            id::LOG_ANNOUNCE_INTERVAL => {
                ManagementReply::byte(settings.log_announce.cast_unsigned())
            }
            id::ANNOUNCE_RECEIPT_TIMEOUT => {
                ManagementReply::byte(settings.announce_receipt_timeout)
            }
            id::LOG_SYNC_INTERVAL => ManagementReply::byte(settings.log_sync.cast_unsigned()),
            id::VERSION_NUMBER => ManagementReply::byte(VERSION),
            // A time that may be wrong is not reported.
            id::TIME if clock.usable => ManagementReply::data(&now),
            id::CLOCK_ACCURACY => ManagementReply::byte(clock.accuracy),
            id::UTC_PROPERTIES => {
                let leaps =
                    PtpFlags::LEAP_61.with(PtpFlags::LEAP_59).with(PtpFlags::UTC_OFFSET_VALID);
                let (utc_offset, flags) = (clock.utc_offset, flags(leaps));
                ManagementReply::data(&TimeProperties { utc_offset, flags, time_source: 0 })
            }
            id::TRACEABILITY_PROPERTIES => ManagementReply::byte(flags(traceable)),
            id::TIMESCALE_PROPERTIES => {
                ManagementReply::pair(flags(PtpFlags::PTP_TIMESCALE), clock.time_source)
            }
            id::UNICAST_NEGOTIATION_ENABLE => {
                ManagementReply::byte(u8::from(settings.unicast.grants_max > 0))
            }
            id::MASTER_ONLY => ManagementReply::byte(1),
            id::DELAY_MECHANISM => ManagementReply::byte(settings.delay.number()),
            id::LOG_MIN_PDELAY_REQ_INTERVAL => {
                ManagementReply::byte(settings.log_min_delay_req.cast_unsigned())
            }
            _ => return None,
        })
    }

    fn describe(&self) -> ManagementReply {
        let description = ClockDescription {
            kinds: ClockDescription::ORDINARY,
            physical_layer: PHYSICAL_LAYER,
            physical_address: &self.settings.mac.0,
            protocol: self.settings.transport.protocol(),
            protocol_address: &self.settings.address,
            manufacturer: [0; 3],
            product: PRODUCT,
            revision: REVISION,
            user: &self.clock.user,
            profile: self.clock.profile.identity(),
        };
        ManagementReply::by(|buffer| description.emit(buffer))
    }

    fn default_data_set(&self, clock: &PtpClockState) -> DefaultDataSet {
        DefaultDataSet {
            two_step: !self.settings.one_step,
            slave_only: false,
            ports: self.clock.ports,
            clock: clock.grandmaster(&self.clock),
            domain: self.clock.domain,
        }
    }

    fn port_data_set(&self) -> PortDataSet {
        PortDataSet {
            port: self.identity,
            state: self.state as u8,
            log_min_delay_req: self.settings.log_min_delay_req,
            // A master does not measure it.
            peer_delay: TimeInterval::default(),
            log_announce: self.settings.log_announce,
            announce_receipt_timeout: self.settings.announce_receipt_timeout,
            log_sync: self.settings.log_sync,
            delay_mechanism: self.settings.delay.number(),
            log_min_pdelay_req: self.settings.log_min_delay_req,
            version: VERSION,
        }
    }
}

const _: () = assert!(REFUSAL_TLV_LEN <= SUFFIX_LEN_MAX);
