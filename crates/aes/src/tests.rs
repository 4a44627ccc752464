//! The standard's example, and the library as an oracle.

use proptest::prelude::*;

use super::*;

/// FIPS 197, appendix B.
const KEY: Block = 0x2b7e_1516_28ae_d2a6_abf7_1588_09cf_4f3c_u128.to_be_bytes();
const PLAIN: Block = 0x3243_f6a8_885a_308d_3131_98a2_e037_0734_u128.to_be_bytes();
const CIPHER: Block = 0x3925_841d_02dc_09fb_dc11_8597_196a_0b32_u128.to_be_bytes();

#[test]
fn encrypts_like_fips_197_b() {
    for key in [AesKey::new(&KEY), AesKey::new_portable(&KEY)] {
        for count in 0..2 * LANES + 4 {
            let mut blocks = vec![PLAIN; count];
            key.encrypt(&mut blocks);
            assert_eq!(blocks, vec![CIPHER; count]);
        }
    }
}

#[test]
fn a_key_can_replace_another() {
    for mut key in [AesKey::blank(), AesKey::new(&PLAIN), AesKey::new_portable(&PLAIN)] {
        key.rekey(&KEY);
        let mut blocks = [PLAIN];
        key.encrypt(&mut blocks);
        assert_eq!(blocks, [CIPHER]);
        key.wipe();
        key.encrypt(&mut blocks);
        let mut alone = [CIPHER];
        key.encrypt(&mut alone);
        assert_ne!(blocks, [PLAIN]);
        assert_eq!(blocks, alone, "nothing is left of the key");
    }
}

#[test]
fn nothing_is_shown_of_a_key() {
    assert_eq!(format!("{:?}", AesKey::new(&KEY)), "AesKey { .. }");
}

fn message() -> impl Strategy<Value = (Block, Block, Vec<Block>, Vec<Block>)> {
    let blocks = |most| proptest::collection::vec(any::<Block>(), 0..most);
    (any::<Block>(), any::<Block>(), blocks(20), blocks(3))
}

proptest! {
    /// Chains of any lengths, under any keys, of both kinds, end as if each had run alone with the
    /// library.
    #[test]
    fn chains_do_not_mix(
        messages in proptest::collection::vec(message(), 0..2 * LANES + 4),
        portable in proptest::option::weighted(0.3, any::<prop::sample::Index>()),
    ) {
        let mut keys: Vec<_> = messages.iter().map(|(key, ..)| AesKey::new(key)).collect();
        if let Some(index) = portable.filter(|_| !keys.is_empty()) {
            let index = index.index(keys.len());
            keys[index] = AesKey::new_portable(&messages[index].0);
        }
        let mut lanes: Vec<_> = keys
            .iter()
            .zip(&messages)
            .map(|(key, (_, state, blocks, last))| CmacChain { state: *state, ..CmacChain::new(key, blocks, last) })
            .collect();
        run_chains(&mut lanes);
        for (lane, (key, state, blocks, last)) in lanes.iter().zip(&messages) {
            let key = Aes128Enc::new(key.into());
            let mut expected = *state;
            for block in blocks.iter().chain(last) {
                expected.iter_mut().zip(block).for_each(|(byte, other)| *byte ^= other);
                encrypt_block(&key, &mut expected);
            }
            prop_assert_eq!(lane.state, expected);
        }
    }
}
