"""Features of images that are fixed and public: never trained."""
