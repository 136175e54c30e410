//! [`Bars`] compares figures with their bars. The *bar* of a figure is the most that it may be.

/// Collects the figures that exceed their bars.
#[derive(Debug, Default)]
pub(crate) struct Bars {
    missed: Vec<String>,
}

impl Bars {
    /// Prints a figure and its bar, and compares them.
    pub(crate) fn at_most(&mut self, what: &str, figure: f64, bar: f64) {
        println!("{what}: {figure:.2} (bar: {bar})");
        self.check(what, figure, bar);
    }

    /// Compares a figure with its bar.
    pub(crate) fn check(&mut self, what: &str, figure: f64, bar: f64) {
        if figure > bar {
            self.missed
                .push(format!("{what} is {figure:.2}, and not at most {bar}"));
        }
    }

    /// Prints the figures that exceed their bars. Returns `true` if there are none.
    pub(crate) fn report(self) -> bool {
        for missed in &self.missed {
            println!("MISSED: {missed}");
        }
        self.missed.is_empty()
    }
}
