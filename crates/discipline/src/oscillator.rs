//! Model of a free-running oscillator: power-law noises of the frequency, ageing and temperature,
//! with the parameters of three classes of oscillators.
//!
//! Noises are given by the Allan deviation that each has alone (IEEE 1139-2008; NIST Special
//! Publication 1065, section 3.3): white frequency modulation falls with the root of the averaging
//! time, flicker stays, random walk rises with its root. Frequencies are in parts per billion, that
//! is, ns per second.

use std::f64::consts::PI;

/// Seconds in a day, the unit for which ageing is stated.
pub(crate) const DAY_S: f64 = 86_400.0;

/// Sinusoidal variation of the frequency with a temperature cycle.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TemperatureCycle {
    /// Amplitude of the frequency, in ppb: the oscillator's temperature coefficient times half the
    /// temperature range.
    pub amplitude_ppb: f64,
    /// Period of the cycle, in seconds.
    pub period_s: f64,
}

impl TemperatureCycle {
    /// Returns the angular frequency, in radians per second.
    pub(crate) fn angular_frequency(&self) -> f64 {
        2.0 * PI / self.period_s
    }
}

/// Noise, ageing and temperature model of an oscillator.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct OscillatorModel {
    /// Name of the class, such as `tcxo`.
    pub name: &'static str,
    /// Deviation of its frequency from nominal when it is new, in ppb.
    pub frequency_ppb: f64,
    /// White frequency modulation: Allan deviation at 1 s, in ppb.
    pub white_fm_ppb: f64,
    /// Flicker frequency modulation: Allan deviation at any averaging time, in ppb.
    pub flicker_fm_ppb: f64,
    /// Random walk of the frequency: Allan deviation at 1 s, in ppb.
    pub random_walk_fm_ppb: f64,
    /// Ageing: growth of the frequency per day, in ppb.
    pub ageing_ppb_per_day: f64,
    /// Variation with temperature.
    pub temperature: TemperatureCycle,
}

impl OscillatorModel {
    /// Plain crystal on a small board, such as the Raspberry Pi's, in a heated room.
    ///
    /// Published measurements: an Allan deviation near 1 ppb at 10 s, rising with temperature, 0.1
    /// to 1 ppm per kelvin and rooms that go through 2 K in 30 to 90 minutes (J. Lux and B. Camp on
    /// the time-nuts list, November 2015); 6 ppm over the temperatures of an office
    /// (raspberrypi.stackexchange.com, question 74482). Frequency and ageing are usual limits in
    /// data sheets of such crystals: 20 ppm, and 3 ppm in the first year.
    pub const RASPBERRY_PI: Self = Self {
        name: "raspberry-pi",
        frequency_ppb: 20_000.0,
        white_fm_ppb: 1.0,
        flicker_fm_ppb: 0.7,
        random_walk_fm_ppb: 0.3,
        ageing_ppb_per_day: 8.0,
        temperature: TemperatureCycle { amplitude_ppb: 500.0, period_s: 3_600.0 },
    };
    /// Temperature-compensated crystal (TCXO).
    ///
    /// J. R. Vig, "Introduction to Quartz Frequency Standards" (SLCET-TR-92-1, 1992), gives for
    /// this class an Allan deviation of 1 ppb at 1 s, 0.5 ppm over the whole temperature range, 0.5
    /// ppm of ageing per year and an accuracy of 2 ppm. A room covers a twentieth of that range.
    pub const TCXO: Self = Self {
        name: "tcxo",
        frequency_ppb: 2_000.0,
        white_fm_ppb: 0.7,
        flicker_fm_ppb: 0.3,
        random_walk_fm_ppb: 0.03,
        ageing_ppb_per_day: 1.4,
        temperature: TemperatureCycle { amplitude_ppb: 25.0, period_s: 3_600.0 },
    };
    /// Oven-controlled crystal (OCXO).
    ///
    /// Vig 1992 (see [`Self::TCXO`]) gives 0.001 ppb at 1 s, 1 ppb over the whole temperature
    /// range, 5 ppb of ageing per year and an accuracy of 10 ppb for the best; this is an ordinary
    /// one, ten times as noisy.
    pub const OCXO: Self = Self {
        name: "ocxo",
        frequency_ppb: 50.0,
        white_fm_ppb: 0.01,
        flicker_fm_ppb: 0.01,
        random_walk_fm_ppb: 0.000_3,
        ageing_ppb_per_day: 0.1,
        temperature: TemperatureCycle { amplitude_ppb: 0.2, period_s: 3_600.0 },
    };
    /// All classes of oscillators.
    pub const ALL: [Self; 3] = [Self::RASPBERRY_PI, Self::TCXO, Self::OCXO];

    /// Returns the oscillator of the class with this name; `None` if there is none.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|oscillator| oscillator.name == name)
    }

    /// Returns the diffusion coefficient q of the random walk of frequency: the growth of the
    /// frequency's variance per second, in ppb² (C. Zucca and P. Tavella, "The clock model and its
    /// relationship with the Allan and related variances", IEEE Trans. UFFC 52(2), 2005: σ² = q τ /
    /// 3).
    #[must_use]
    pub fn random_walk_density(&self) -> f64 {
        3.0 * self.random_walk_fm_ppb.powi(2)
    }
}
