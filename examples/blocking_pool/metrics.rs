//! Reads the metrics of the pool out of the text for Prometheus.

/// Adds up the values of a metric of the pool.
pub(crate) fn value(text: &str, name: &str) -> Option<u64> {
    let start = format!("throng_blocking_{name}{{");
    let lines = text.lines().filter(|line| line.starts_with(&start));
    let mut values = lines.map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
    let first = values.next()??;
    values.try_fold(first, |sum, value| Some(sum + value?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_and_added_up() {
        let text = "# TYPE throng_blocking_threads gauge\n\
            throng_blocking_threads{pool=\"a\",state=\"busy\"} 3\n\
            throng_blocking_threads{pool=\"a\",state=\"idle\"} 4\n\
            throng_blocking_queue_length{pool=\"a\"} 0\n\
            throng_blocking_broken{pool=\"a\"} many\n";
        assert_eq!(value(text, "threads"), Some(7));
        assert_eq!(value(text, "queue_length"), Some(0));
        assert_eq!(value(text, "queue"), None);
        assert_eq!(value(text, "broken"), None);
    }
}
