//! The colors of a flame graph: one hue for each module, paler for functions that were not
//! measured.

use super::model::{Model, Name};
use std::cmp::Reverse;
use std::collections::HashMap;

/// The hue of the first module, in degrees.
const FIRST_HUE: f64 = 30.0;
/// The angle between the hues of two modules, in degrees: the golden angle, which keeps hues apart.
const STEP: f64 = 137.508;

/// The modules of a profile by their number of functions, largest first.
#[derive(Debug)]
pub(super) struct Shades {
    /// The displayed names of the modules.
    pub(super) modules: Vec<String>,
    /// The index in `modules` for each [`Name`]. `None` for code that belongs to no file.
    of_names: Vec<Option<usize>>,
}

impl Shades {
    pub(super) fn of(model: &Model<'_>) -> Self {
        let profile = model.profile;
        let all = (0..profile.modules.len()).map(|module| profile.module_name(Some(module)));
        let all: Vec<_> = all.collect();
        let names = model.modules.iter();
        let names: Vec<Option<&str>> = names
            .map(|module| module.and_then(|module| all.get(module).map(|name| &**name)))
            .collect();
        let mut sizes: HashMap<&str, usize> = HashMap::new();
        for name in names.iter().flatten() {
            *sizes.entry(name).or_default() += 1;
        }
        let mut modules: Vec<(&str, usize)> = sizes.into_iter().collect();
        modules.sort_by_key(|&(name, size)| (Reverse(size), name));
        let places = modules.iter().enumerate();
        let places: HashMap<&str, usize> = places.map(|(i, &(name, _))| (name, i)).collect();
        let place = |name: &Option<&str>| name.map(|name| places[name]);
        Self {
            of_names: names.iter().map(place).collect(),
            modules: modules.iter().map(|&(name, _)| name.to_owned()).collect(),
        }
    }

    /// The index of a function's module in [`Self::modules`]. `None` if it is not known.
    pub(super) fn module(&self, name: Name) -> Option<usize> {
        self.of_names.get(name).copied().flatten()
    }

    /// The color in a legend of the module with this index in [`Self::modules`], for CSS.
    pub(super) fn legend(module: usize) -> String {
        rgb(Some(module), 0.7, 0.7)
    }

    /// The color of a function, for CSS. Functions that were not measured are paler. A hash of
    /// `text`, the function's name, varies the lightness.
    pub(super) fn colour(&self, name: Name, text: &str, is_measured: bool) -> String {
        // FNV-1a. Functions of one module differ slightly.
        let hash = text.bytes().fold(0x811c_9dc5u32, |hash, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        });
        let part = f64::from(hash % 64) / 64.0;
        if is_measured {
            rgb(self.module(name), 0.75, 0.6 + 0.12 * part)
        } else {
            rgb(self.module(name), 0.4, 0.84 + 0.06 * part)
        }
    }
}

/// The hue of the module with this index in [`Shades::modules`], in degrees.
pub(super) fn hue(module: usize) -> f64 {
    (FIRST_HUE + STEP * module as f64) % 360.0
}

/// The color of a module by saturation and lightness. Code that belongs to no module is gray.
fn rgb(module: Option<usize>, saturation: f64, lightness: f64) -> String {
    let (hue, saturation) = match module {
        Some(module) => (hue(module), saturation),
        None => (0.0, 0.0),
    };
    // CSS Color 4, 7.1: the conversion from HSL.
    let reach = saturation * lightness.min(1.0 - lightness);
    let part = |n: f64| {
        let k = (n + hue / 30.0) % 12.0;
        let value = lightness - reach * (k - 3.0).min(9.0 - k).clamp(-1.0, 1.0);
        (255.0 * value).round() as u8
    };
    format!("rgb({},{},{})", part(0.0), part(8.0), part(4.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::model::Naming;
    use crate::sample::sample;

    #[test]
    fn hues_are_those_of_css() {
        // hsl(30 100% 50%)
        assert_eq!(rgb(Some(0), 1.0, 0.5), "rgb(255,128,0)");
        assert_eq!(rgb(None, 1.0, 0.5), "rgb(128,128,128)");
    }

    #[test]
    fn modules_differ_by_hue_and_the_measured_from_others_by_depth() {
        let profile = sample();
        let model = Model::of(&profile, Naming::default());
        let shades = Shades::of(&model);
        let place = |name: &str| model.names.iter().position(|n| n == name).unwrap();
        let (main, start) = (place("main"), place("__libc_start_main"));
        assert_eq!(shades.modules.len(), 2);
        assert_ne!(shades.module(main), shades.module(start));
        assert_eq!(shades.module(main), shades.module(place("work")));
        assert_eq!(shades.module(0), None);
        let colour = |name: Name, is_measured| shades.colour(name, "x", is_measured);
        assert_ne!(colour(main, true), colour(start, true));
        assert_ne!(colour(main, true), colour(main, false));
    }
}
