//! Entries of a group in the kernel's lookup tables: destinations of its packets, permitted
//! sources, addresses of children and of the relay itself. During a change the tables contain all
//! old and all new entries, afterwards only the new ones; but an address that may no longer send
//! loses its permission at the start of the change.

use std::net::{IpAddr, SocketAddr};

use libbpf_rs::{ErrorKind, MapCore, MapFlags};
use zerocopy::IntoBytes;

use super::abi::{PORTS_OF_WORD, RelayChildEndpointKey, RelaySourcePrefixKey, SOURCE_ALLOWED};
use super::child::to_padded_bytes;
use super::group::{GroupState, RoleBitsByPrefix};
use super::{RelayChild, RelayPrograms};
use crate::responder::listen_key;
use crate::{XdpError, object};

impl RelayPrograms {
    /// Adds these destination addresses to the group's, without removing others.
    pub(super) fn add_addresses(
        &self,
        group_state: &GroupState,
        addresses: &[SocketAddr],
    ) -> Result<(), XdpError> {
        let numbers = self.loaded.map("relay_numbers")?;
        let new = addresses.iter().filter(|address| !group_state.addresses.contains(address));
        for address in new {
            numbers
                .update(
                    listen_key(*address).as_bytes(),
                    &group_state.number.to_ne_bytes(),
                    MapFlags::ANY,
                )
                .map_err(|error| map_error(&error))?;
        }
        Ok(())
    }

    /// Removes the destination addresses in `from` that are not in `to`.
    pub(super) fn remove_addresses(
        &self,
        from: &[SocketAddr],
        to: &[SocketAddr],
    ) -> Result<(), XdpError> {
        let numbers = self.loaded.map("relay_numbers")?;
        let removed = from.iter().filter(|address| !to.contains(address));
        removed
            .map(|address| listen_key(*address))
            .try_for_each(|key| ignore_not_found(numbers.delete(key.as_bytes())))
    }

    /// Adds the destinations of these children, without removing others.
    pub(super) fn add_endpoints(
        &self,
        group_state: &GroupState,
        children: &[RelayChild],
    ) -> Result<(), XdpError> {
        let endpoints = self.loaded.map("relay_endpoints")?;
        for RelayChild { destination, .. } in children {
            endpoints
                .update(
                    endpoint_key(group_state.number, *destination).as_bytes(),
                    &[1],
                    MapFlags::ANY,
                )
                .map_err(|error| map_error(&error))?;
        }
        Ok(())
    }

    /// Removes these destinations, except those of present children.
    pub(super) fn remove_endpoints(
        &self,
        group_state: &GroupState,
        mut removed: impl Iterator<Item = SocketAddr>,
    ) -> Result<(), XdpError> {
        let endpoints = self.loaded.map("relay_endpoints")?;
        removed.try_for_each(|endpoint| {
            let is_retained =
                group_state.children.iter().any(|child| child.destination == endpoint);
            let remove = || endpoints.delete(endpoint_key(group_state.number, endpoint).as_bytes());
            if is_retained { Ok(()) } else { ignore_not_found(remove()) }
        })
    }

    /// Adds the entries of `to`. Until the change is complete, each also has the roles as child and
    /// as own address that its prefix has in `from`; the permission to send is that of `to`.
    pub(super) fn add_sources(
        &self,
        group: u32,
        from: &RoleBitsByPrefix,
        to: &RoleBitsByPrefix,
    ) -> Result<(), XdpError> {
        let interim = to.iter().map(|(prefix, roles)| {
            let before = from.get(prefix).map_or(0, |before| before & !SOURCE_ALLOWED);
            (*prefix, roles | before)
        });
        self.write_changed_sources(group, from, interim)
    }

    /// Writes all entries of `to`, and removes the entries of `from` that are not in `to`.
    pub(super) fn finish_sources(
        &self,
        group: u32,
        to: &RoleBitsByPrefix,
        from: &RoleBitsByPrefix,
    ) -> Result<(), XdpError> {
        self.write_changed_sources(
            group,
            &RoleBitsByPrefix::new(),
            to.iter().map(|(prefix, what)| (*prefix, *what)),
        )
        .and(self.remove_sources(group, from, to))
    }

    fn write_changed_sources(
        &self,
        group: u32,
        current: &RoleBitsByPrefix,
        entries: impl Iterator<Item = ((IpAddr, u8), u8)>,
    ) -> Result<(), XdpError> {
        let sources = self.loaded.map("relay_sources")?;
        for (prefix, roles) in entries.filter(|(prefix, what)| current.get(prefix) != Some(what)) {
            sources
                .update(source_key(group, prefix).as_bytes(), &[roles], MapFlags::ANY)
                .map_err(|error| map_error(&error))?;
        }
        Ok(())
    }

    /// Removes the entries in `from` that are not in `to`.
    fn remove_sources(
        &self,
        group: u32,
        from: &RoleBitsByPrefix,
        to: &RoleBitsByPrefix,
    ) -> Result<(), XdpError> {
        let sources = self.loaded.map("relay_sources")?;
        let removed = from.keys().filter(|prefix| !to.contains_key(prefix));
        removed
            .map(|prefix| source_key(group, *prefix))
            .try_for_each(|key| ignore_not_found(sources.delete(key.as_bytes())))
    }

    /// Removes all entries of a group from the lookup tables.
    pub(super) fn remove_entries(&self, group_state: &GroupState) -> Result<(), XdpError> {
        let endpoints = self.loaded.map("relay_endpoints")?;
        let children = group_state
            .children
            .iter()
            .map(|child| endpoint_key(group_state.number, child.destination));
        let results = children.map(|key| ignore_not_found(endpoints.delete(key.as_bytes())));
        results
            .fold(Ok(()), Result::and)
            .and(self.remove_sources(
                group_state.number,
                &group_state.sources,
                &RoleBitsByPrefix::new(),
            ))
            .and(self.remove_addresses(&group_state.addresses, &[]))
    }

    /// Updates the bitmap of listen ports to those of all groups, and `extra`.
    pub(super) fn update_ports(&self, extra: Option<u16>) {
        let mut words = vec![0_u64; self.ports.entries() as usize];
        for port in self.group_states.keys().map(SocketAddr::port).chain(extra) {
            words[usize::from(port / PORTS_OF_WORD)] |= 1 << (port % PORTS_OF_WORD);
        }
        for (index, word) in (0..).zip(&words) {
            if self.ports.read(index) != *word {
                self.ports.write(index, word);
            }
        }
    }
}

fn source_key(group: u32, (address, length): (IpAddr, u8)) -> RelaySourcePrefixKey {
    RelaySourcePrefixKey {
        length: u32::BITS + u32::from(length),
        group,
        address: to_padded_bytes(address),
    }
}

fn endpoint_key(group: u32, endpoint: SocketAddr) -> RelayChildEndpointKey {
    let (port, address) = (endpoint.port().to_be_bytes(), to_padded_bytes(endpoint.ip()));
    RelayChildEndpointKey { group, port, reserved: 0, address }
}

pub(super) fn map_error(error: &libbpf_rs::Error) -> XdpError {
    XdpError::Map(object::to_io_error(error))
}

pub(super) fn ignore_not_found(result: libbpf_rs::Result<()>) -> Result<(), XdpError> {
    match result {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(map_error(&error)),
        _ => Ok(()),
    }
}
