"""relax_aot: models with symbolic sizes to plain, bounded C."""
