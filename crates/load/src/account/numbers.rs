//! PTP numbers messages in 16 bits, and a lane its requests in more: which of a client's requests a
//! number stands for. Pure.

/// How many requests of the lane lie between the one with this sequence number and the latest one
/// before it, or itself, of the same of `count` clients whose number ends in `sequence_id`. Numbers
/// begin again at `wrap`, a multiple of `count` above 2^17; those of messages after 2^16 requests
/// of the lane, so no older one is meant.
pub(super) fn back_to(sequence: u64, sequence_id: u16, (count, wrap): (u64, u64)) -> Option<u64> {
    const NUMBERS: u64 = 1 << 16;
    let id = u64::from(sequence_id);
    let within = (sequence + NUMBERS - id) % NUMBERS;
    if within <= sequence && within.is_multiple_of(count) {
        return Some(within);
    }
    // Behind the beginning the numbers go on from the end.
    let beyond = (sequence + wrap + NUMBERS - id) % NUMBERS;
    [beyond, beyond + NUMBERS]
        .into_iter()
        .find(|back| *back > sequence && *back <= NUMBERS && back.is_multiple_of(count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The same, one request after the other.
    fn stepping(sequence: u64, sequence_id: u16, (count, wrap): (u64, u64)) -> Option<u64> {
        let mut number = sequence;
        (0..=(1 << 16) / count).find_map(|step| {
            let found = number as u16 == sequence_id;
            number = if number < count { number + wrap - count } else { number - count };
            found.then_some(step * count)
        })
    }

    proptest! {
        #[test]
        fn a_number_is_found_where_stepping_finds_it(
            count in prop_oneof![1_u64..4, 1_u64..70_000],
            room in (1_u64 << 18)..1 << 27,
            place in 0_u64..200_000,
            ago in 0_u64..200_000,
            other: u16,
        ) {
            // Numbers of a lane go further than those of messages.
            let wrap = room / count * count;
            let sequence = place;
            let earlier = (sequence + wrap - ago * count % wrap) % wrap;
            for id in [earlier as u16, other] {
                let stepped = stepping(sequence, id, (count, wrap));
                prop_assert_eq!(back_to(sequence, id, (count, wrap)), stepped);
            }
        }
    }
}
