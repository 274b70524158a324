"""Language models: tokens a second, and the models of MLC-LLM."""
